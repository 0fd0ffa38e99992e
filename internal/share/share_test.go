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

// collected runs the garbage collector until done returns true, and reports whether it
// does within half a minute.
func collected(done func() bool) bool {
	for range 1500 {
		runtime.GC()
		if done() {
			return true
		}
		time.Sleep(20 * time.Millisecond) // the runtime keeps a stopped timer, and what it would call, until its time
	}
	return false
}

func TestEqualBytesHaveEqualKeys(t *testing.T) {
	a := KeyOf("json", []byte("group"))
	if a != KeyOf("json", []byte("group")) {
		t.Error("equal bytes have different keys")
	}
	for name, other := range map[string]Key{
		"other bytes":         KeyOf("json", []byte("groups")),
		"another form":        KeyOf("protobuf", []byte("group")),
		"the boundary shifts": KeyOf("jsongr", []byte("oup")),
	} {
		if a == other {
			t.Errorf("%s: the same key", name)
		}
	}
}

// big is a value that no allocator puts together with others, as it does with tiny ones.
type big [16]*byte

func made(value *big) func() (*big, error) { return func() (*big, error) { return value, nil } }

func keyOf(n int) Key { return Key{byte(n)} }

func put(p *pool[big], key int) *big {
	value, _ := p.Get(keyOf(key), made(new(big)))
	return value
}

func TestValueIsMadeOnceAndFailuresAreNotKept(t *testing.T) {
	var p pool[big]
	reason := errors.New("no value")
	if _, err := p.Get(keyOf(1), func() (*big, error) { return nil, reason }); !errors.Is(err, reason) || p.len() > 0 {
		t.Errorf("kept %d: %v", p.len(), err)
	}
	first := put(&p, 1)
	if put(&p, 1) != first || put(&p, 2) == first {
		t.Error("not one value for each key")
	}
	runtime.KeepAlive(first)
}

func TestPoolForgets(t *testing.T) {
	var p pool[big]
	kept := put(&p, 0)
	for key := range 100 {
		put(&p, key+1)
	}
	if !collected(func() bool { return p.len() == 1 }) {
		t.Errorf("%d values are left", p.len())
	}
	if put(&p, 0) != kept {
		t.Error("what is in use has gone")
	}
	runtime.KeepAlive(kept)
}

// The cleanup of a value must not take away the one that has replaced it.
func TestPoolForgetsNoSuccessor(t *testing.T) {
	var p pool[big]
	for range 50 {
		put(&p, 1)
		runtime.GC() // its cleanup runs whenever it likes
		successor := put(&p, 1)
		runtime.GC()
		if put(&p, 1) != successor {
			t.Fatal("the successor has gone")
		}
		runtime.KeepAlive(successor)
	}
	if !collected(func() bool { return p.len() == 0 }) {
		t.Error("the last one is left")
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
}
