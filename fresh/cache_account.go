// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"hash/maphash"

	"k8s.io/apimachinery/pkg/types"
)

// account has the objects that a handler was given, each as it was given last. An object has its name in itself, so the key
// is only a hash of the name, and takes 8 bytes in place of 32: a program may have many objects, and several handlers of each.
type account struct {
	seed   maphash.Seed
	hashOf func(types.NamespacedName) uint64
	byHash map[uint64]any
	others map[types.NamespacedName]any // those whose hash another object has
}

func newAccount() *account {
	a := &account{seed: maphash.MakeSeed(), byHash: map[uint64]any{}}
	a.hashOf = a.hash
	return a
}

func (a *account) hash(name types.NamespacedName) uint64 {
	var h maphash.Hash
	h.SetSeed(a.seed)
	_, _ = h.WriteString(name.Namespace)
	_ = h.WriteByte('/')
	_, _ = h.WriteString(name.Name)
	return h.Sum64()
}

// get returns the object of a name, and whether there is one.
func (a *account) get(name types.NamespacedName) (any, bool) {
	if obj, ok := a.byHash[a.hashOf(name)]; ok && nameOf(obj) == name {
		return obj, true
	}
	obj, ok := a.others[name]
	return obj, ok
}

// put replaces the object of a name.
func (a *account) put(name types.NamespacedName, obj any) {
	hash := a.hashOf(name)
	if other, ok := a.byHash[hash]; ok && nameOf(other) != name {
		if a.others == nil {
			a.others = map[types.NamespacedName]any{}
		}
		a.others[name] = obj
		return
	}
	delete(a.others, name)
	a.byHash[hash] = obj
}

// remove removes the object of a name, if there is one.
func (a *account) remove(name types.NamespacedName) {
	hash := a.hashOf(name)
	if obj, ok := a.byHash[hash]; ok && nameOf(obj) == name {
		delete(a.byHash, hash)
	}
	delete(a.others, name)
}

// all returns all objects.
func (a *account) all() (objects []any) {
	for _, obj := range a.byHash {
		objects = append(objects, obj)
	}
	for _, obj := range a.others {
		objects = append(objects, obj)
	}
	return objects
}

// nameOf returns the name of an object.
func nameOf(obj any) types.NamespacedName {
	name, _ := identityOf(obj)
	return name
}
