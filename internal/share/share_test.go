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
		"another encoding":    KeyOf("protobuf", []byte("group")),
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

// awaitLen waits until a pool has so many values: the runtime runs cleanups whenever it likes.
func awaitLen(t *testing.T, p *pool[big], want int) {
	t.Helper()
	deadline := time.Now().Add(time.Minute)
	for p.len() != want && time.Now().Before(deadline) {
		runtime.GC()
		time.Sleep(20 * time.Millisecond)
	}
	if got := p.len(); got != want {
		t.Errorf("%d values are left in the pool, want %d", got, want)
	}
}

// A value is forgotten when nobody uses it any more, and only then.
func TestPoolForgetsWhatNobodyUses(t *testing.T) {
	var p pool[big]
	kept := put(&p, 0)
	for key := range 100 {
		put(&p, key+1)
	}

	awaitLen(t, &p, 1)

	if put(&p, 0) != kept {
		t.Error("what is in use was forgotten")
	}
	runtime.KeepAlive(kept)
}

// A value that has taken the place of another one before the cleanup of that has run stays.
func TestPoolKeepsASuccessor(t *testing.T) {
	var p pool[big]
	for key := range 100 {
		put(&p, key)
		runtime.GC()
		successor := put(&p, key)
		runtime.GC()

		if put(&p, key) != successor {
			t.Fatal("a value that is in use was forgotten, with the cleanup of the one before it")
		}
		runtime.KeepAlive(successor)
	}
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
