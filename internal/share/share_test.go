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

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func (p *pool[K, V]) len() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.values)
}

// collected runs the garbage collector until done returns true, and reports whether it
// does.
func collected(done func() bool) bool {
	for range 100 {
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

func TestFailedGroupsAreNotKept(t *testing.T) {
	reason, key := errors.New("no group"), KeyOf("", []byte("bad"))
	if _, err := Group(key, func() (*snapshot.Group, error) { return nil, reason }); !errors.Is(err, reason) || groups.get(key) != nil {
		t.Errorf("kept: %v, %v", groups.get(key) != nil, err)
	}
}

// big is a value that no allocator puts together with others, as it does with tiny ones.
type big [16]*byte

func TestPoolForgets(t *testing.T) {
	var p pool[int, big]
	kept := p.put(0, new(big))
	for key := range 100 {
		p.put(key+1, new(big))
	}
	if !collected(func() bool { return p.len() == 1 }) {
		t.Errorf("%d values are left", p.len())
	}
	if p.get(0) != kept {
		t.Error("what is in use has gone")
	}
	runtime.KeepAlive(kept)
}

// The cleanup of a value must not take away the one that has replaced it.
func TestPoolForgetsNoSuccessor(t *testing.T) {
	var p pool[int, big]
	for range 50 {
		p.put(1, new(big))
		runtime.GC() // its cleanup runs whenever it likes
		successor := p.put(1, new(big))
		runtime.GC()
		if p.get(1) != successor {
			t.Fatal("the successor has gone")
		}
		runtime.KeepAlive(successor)
	}
	if !collected(func() bool { return p.len() == 0 }) {
		t.Error("the last one is left")
	}
}

// Goroutines that put the same key at once agree on one value.
func TestPoolRace(t *testing.T) {
	var p pool[int, big]
	for key := range 50 {
		values := make([]*big, 8)
		var wg sync.WaitGroup
		for i := range values {
			wg.Go(func() { values[i] = p.put(key, new(big)) })
		}
		wg.Wait()
		for _, v := range values {
			if v != values[0] {
				t.Fatal("two values for one key")
			}
		}
	}
}

func TestGroupIsDecodedOnce(t *testing.T) {
	key, decoded := KeyOf("test", []byte("once")), 0
	decode := func() (*snapshot.Group, error) {
		decoded++
		return snapshot.NewGroup("once", "", []snapshot.Version{{Name: "v1"}}), nil
	}
	first, _ := Group(key, decode)
	second, _ := Group(key, decode)
	if first != second || decoded != 1 {
		t.Errorf("decoded %d times", decoded)
	}
	all := []*snapshot.Group{first}
	if list := List(all, key, nil); list != List(all, key, nil) {
		t.Error("equal lists are not shared")
	}
	runtime.KeepAlive(first)
}
