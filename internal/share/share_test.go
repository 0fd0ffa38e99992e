// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package share

import (
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (p *pool[V]) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.values)
}

func TestEqualBytesHaveEqualKeys(t *testing.T) {
	for name, key := range map[string]Key{
		"equal bytes":         KeyOf("json", []byte("group")),
		"other bytes":         KeyOf("json", []byte("groups")),
		"another form":        KeyOf("protobuf", []byte("group")),
		"the boundary shifts": KeyOf("jsongr", []byte("oup")),
	} {
		if same := key == KeyOf("json", []byte("group")); same != (name == "equal bytes") {
			t.Errorf("%s: the same key: %t", name, same)
		}
	}
}

// big is a value that no allocator puts together with others, as it does with tiny ones.
type big [16]*byte

func put(p *pool[big], key int) *big {
	value, _ := p.Get(Key{byte(key)}, func() (*big, error) { return new(big), nil })
	return value
}

func TestFailuresAreNotKept(t *testing.T) {
	var p pool[big]
	reason := errors.New("no value")
	if _, err := p.Get(Key{1}, func() (*big, error) { return nil, reason }); !errors.Is(err, reason) || p.len() > 0 {
		t.Errorf("a value that cannot be made: %v, and %d values are kept; want %v and none", err, p.len(), reason)
	}
}

// A value goes when nobody uses it, and no other goes with it: not what is in use, and not what has
// taken its place before its cleanup runs.
func TestPoolForgets(t *testing.T) {
	var p pool[big]
	kept := put(&p, 0)
	for key := range 100 {
		put(&p, key+1)
		runtime.GC() // cleanups run whenever they like
		successor := put(&p, key+1)
		runtime.GC()
		if put(&p, key+1) != successor {
			t.Fatal("a value that is in use has gone, with the cleanup of the one before it")
		}
		runtime.KeepAlive(successor)
	}
	for deadline := time.Now().Add(time.Minute); p.len() > 1 && time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
		runtime.GC()
	}
	if p.len() != 1 {
		t.Errorf("%d values are left, want the one that is in use", p.len())
	}
	if put(&p, 0) != kept {
		t.Error("what is in use has gone")
	}
	runtime.KeepAlive(kept)
}

// Goroutines that make the value of the same key at once agree on one.
func TestPoolRace(t *testing.T) {
	var p pool[big]
	for key := range 50 {
		values := make([]*big, 8)
		var wg sync.WaitGroup
		for i := range values {
			wg.Go(func() { values[i] = put(&p, key) })
		}
		wg.Wait()
		for _, v := range values {
			if v != values[0] {
				t.Fatal("two values for one key")
			}
		}
	}
	if put(&p, 0) == put(&p, 1) {
		t.Error("one value for two keys")
	}
}
