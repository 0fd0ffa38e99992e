// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func named(namespace, name string) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
}

// The objects that were delivered are kept as in a map by name, also if many names have the same hash.
func TestDeliveredObjectsAreAMap(t *testing.T) {
	for _, hashes := range []uint64{1, 3, 1 << 60} {
		delivered, want := newDeliveredObjects(), map[types.NamespacedName]any{}
		hash := delivered.hash
		delivered.hash = func(name types.NamespacedName) uint64 { return hash(name) % hashes }
		for step := range 5000 {
			name := types.NamespacedName{Namespace: fmt.Sprint("ns", rand.N(3)), Name: fmt.Sprint("n", rand.N(20))}
			if rand.N(3) == 0 {
				delivered.remove(name)
				delete(want, name)
			} else {
				obj := named(name.Namespace, name.Name)
				delivered.put(name, obj)
				want[name] = obj
			}
			for name, obj := range want {
				got, ok := delivered.get(name)
				if !ok || got != obj {
					t.Fatalf("%d hashes, step %d: %v is %v, %t; want %v", hashes, step, name, got, ok, obj)
				}
			}
			all := map[types.NamespacedName]any{}
			for obj := range delivered.all() {
				all[nameOf(obj)] = obj
			}
			if !maps.Equal(all, want) {
				t.Fatalf("%d hashes, step %d: all objects are %v, want %v", hashes, step, all, want)
			}
		}
	}
}

// A caller that iterates over all objects may remove them meanwhile, and gets each of them once.
func TestDeliveredObjectsMayBeRemovedMeanwhile(t *testing.T) {
	delivered := newDeliveredObjects()
	for n := range 1000 {
		obj := named("ns", fmt.Sprint(n))
		delivered.put(nameOf(obj), obj)
	}
	met := map[types.NamespacedName]int{}
	for obj := range delivered.all() {
		name := nameOf(obj)
		met[name]++
		if len(met)%2 == 0 {
			delivered.remove(name)
		}
	}
	if len(met) != 1000 || slices.Max(slices.Collect(maps.Values(met))) > 1 {
		t.Errorf("%d of 1000 objects were met, one of them %d times", len(met),
			slices.Max(slices.Collect(maps.Values(met))))
	}
	left := 0
	for range delivered.all() {
		left++
	}
	if left != 500 {
		t.Errorf("%d objects are left, want 500", left)
	}
}

// An object takes at most 30 bytes, however many there are.
func TestSizeOfDeliveredObjects(t *testing.T) {
	for _, count := range []int{1000, 8000, 15_000, 17_000, 40_000} {
		objects := make([]any, count)
		for n := range objects {
			objects[n] = named("ns", fmt.Sprint(n))
		}
		before := heapInUse()
		delivered := newDeliveredObjects()
		for _, obj := range objects {
			delivered.put(nameOf(obj), obj)
		}
		if size := (heapInUse() - before) / float64(count); size > 30 {
			t.Errorf("%d objects take %.1f bytes each", count, size)
		}
		runtime.KeepAlive(objects)
		runtime.KeepAlive(delivered)
	}
}

func heapInUse() float64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}
