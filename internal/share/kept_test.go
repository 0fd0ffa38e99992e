// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package share

import (
	"net/http"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// caller returns one of many callers.
func caller(n int) Server { return ServerOf(&rest.Config{}, &http.Client{}, strconv.Itoa(n)) }

// bulkOf makes a document of groups.
func bulkOf(groups ...*snapshot.Group) *Bulk { return &Bulk{Named: Document{Groups: groups}} }

func groupOf(name string) *snapshot.Group {
	return snapshot.NewGroup(name, "v1", []snapshot.Version{{Name: "v1", Table: snapshot.NewTable([]snapshot.Resource{{Name: "foos", Kind: "Foo"}})}})
}

// which lists the callers of the first n whose documents are kept.
func (k *kept) which(n int) (found []int) {
	keys := k.cache.Keys()
	for i := range n {
		if slices.Contains(keys, any(caller(i))) {
			found = append(found, i)
		}
	}
	return found
}

func wantNothing(t *testing.T, k *kept) {
	t.Helper()
	synctest.Wait()
	if k.len() != 0 || k.bytes != 0 || len(k.groups) != 0 || len(k.cache.Keys()) != 0 {
		t.Errorf("kept: %d documents, %d bytes, %d groups", k.len(), k.bytes, len(k.groups))
	}
}

// A document is kept for its time after the last use, and its memory goes soon after.
func TestKeptForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ttl = 10 * time.Minute
		k := newKept(ttl, 1<<20)
		b := bulkOf(groupOf("a"))
		for range 5 { // each use prolongs it
			k.put(caller(1), b)
			time.Sleep(ttl - time.Second)
			if k.get(caller(1)) != b {
				t.Fatal("gone before its time")
			}
		}
		k.put(caller(1), b)
		k.put(caller(2), bulkOf(groupOf("b")))
		time.Sleep(ttl + 1)
		if k.get(caller(1)) != nil || k.get(caller(2)) != nil {
			t.Error("found after its time")
		}
		time.Sleep(ttl/10 + 1)
		wantNothing(t, k)
		k.put(caller(1), b) // and again
		time.Sleep(ttl + ttl/10 + 1)
		wantNothing(t, k)
	})
}

// If there is too much, the least recently used document goes first. Finding a document
// and keeping it both count as use.
func TestKeptWithinBytes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := bulkOf(groupOf("0")).size()
		k := newKept(time.Hour, 4*size)
		first := bulkOf(groupOf("0"))
		k.put(caller(0), first)
		for i := range 3 {
			k.put(caller(i+1), bulkOf(groupOf(strconv.Itoa(i+1))))
		}
		k.get(caller(1))
		k.put(caller(0), first)
		for i := range 2 {
			k.put(caller(i+4), bulkOf(groupOf(strconv.Itoa(i+4))))
		}
		if got, want := k.which(6), []int{0, 1, 4, 5}; !slices.Equal(got, want) || k.bytes != 4*size {
			t.Errorf("%v are kept with %d bytes, want %v with %d", got, k.bytes, want, 4*size)
		}
		k.put(caller(0), bulkOf(groupOf("6"))) // in place of the first
		if got, want := k.which(6), []int{0, 1, 4, 5}; !slices.Equal(got, want) || k.bytes != 4*size {
			t.Errorf("%v are kept with %d bytes, want %v with %d", got, k.bytes, want, 4*size)
		}
		var many []*snapshot.Group
		for i := range 10 {
			many = append(many, groupOf(strconv.Itoa(i)))
		}
		k.put(caller(7), bulkOf(many...))
		if k.get(caller(7)) != nil || k.len() != 4 {
			t.Error("one document that is larger than the bound has taken the place of all others")
		}
		k.put(caller(0), bulkOf(many...))
		if k.get(caller(0)) != nil || k.len() != 3 {
			t.Error("a document is kept that has been replaced by one that is too large")
		}
		k.reset(time.Hour, 4*size)
		wantNothing(t, k)
	})
}

// What documents have in common counts once, as long as one of them is there.
func TestKeptGroupsCountOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKept(time.Hour, 1<<20)
		common := groupOf("common")
		a, b := bulkOf(common, groupOf("a")), bulkOf(common, groupOf("b"))
		k.put(caller(0), a)
		k.put(caller(1), b)
		if want := a.size() + b.size() - common.Size(); k.bytes != want {
			t.Errorf("%d bytes, want %d", k.bytes, want)
		}
		k.put(caller(0), bulkOf())
		if want := bulkOf().size() + b.size(); k.bytes != want {
			t.Errorf("%d bytes, want %d", k.bytes, want)
		}
		k.reset(0, 1<<20)
		k.put(caller(0), a)
		wantNothing(t, k)
		k.reset(time.Hour, 0)
		k.put(caller(0), a)
		wantNothing(t, k)
	})
}
