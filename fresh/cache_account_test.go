// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"fmt"
	"math/rand/v2"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// An account answers as a map by name does, also if many names have the same hash.
func TestAccountIsAMap(t *testing.T) {
	for _, hashes := range []uint64{1, 3, 1 << 60} {
		a, want := newAccount(), map[types.NamespacedName]any{}
		hash := a.hashOf
		a.hashOf = func(name types.NamespacedName) uint64 { return hash(name) % hashes }
		for step := range 5000 {
			name := types.NamespacedName{Namespace: fmt.Sprint("ns", rand.N(3)), Name: fmt.Sprint("n", rand.N(20))}
			if rand.N(3) == 0 {
				a.remove(name)
				delete(want, name)
			} else {
				obj := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: name.Namespace, Name: name.Name}}
				a.put(name, obj)
				want[name] = obj
			}
			for name, obj := range want {
				if got, ok := a.get(name); !ok || got != obj {
					t.Fatalf("%d hashes, step %d: %v is %v, %t; want %v", hashes, step, name, got, ok, obj)
				}
			}
			if got := len(a.all()); got != len(want) {
				t.Fatalf("%d hashes, step %d: %d objects, want %d", hashes, step, got, len(want))
			}
		}
	}
}
