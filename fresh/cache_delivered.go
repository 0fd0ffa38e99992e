// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"hash/maphash"
	"iter"

	"k8s.io/apimachinery/pkg/types"
)

// deliveredObjects is a set of objects by name: those that were delivered to a handler, each as it was delivered
// last.
//
// A program may have many objects, and several handlers of each, so this is a hash table of nothing but the objects,
// which have their names in themselves. It takes about 22 bytes an object. A Go map from hashes to objects takes 29
// to 57.
//
// Invariant: between the slot to which the hash of an object's name leads, and the slot that has the object, there is
// no empty slot. So a search ends at the first empty one. Where an object was removed, the slot holds a
// removedObject, until the table is made anew.
type deliveredObjects struct {
	hash  func(types.NamespacedName) uint64
	slots []any // an object, a removedObject, or nil for an empty slot
	used  int   // slots that are not empty
	count int   // objects
}

type removedObject struct{}

func newDeliveredObjects() *deliveredObjects {
	seed := maphash.MakeSeed()
	return &deliveredObjects{hash: func(name types.NamespacedName) uint64 {
		var h maphash.Hash
		h.SetSeed(seed)
		_, _ = h.WriteString(name.Namespace)
		_ = h.WriteByte('/')
		_, _ = h.WriteString(name.Name)
		return h.Sum64()
	}}
}

// get returns the object of a name, and whether there is one.
func (d *deliveredObjects) get(name types.NamespacedName) (any, bool) {
	slot, found := d.find(name)
	if !found {
		return nil, false
	}
	return d.slots[slot], true
}

// put adds an object, in place of another one of its name.
func (d *deliveredObjects) put(name types.NamespacedName, obj any) {
	slot, found := d.find(name)
	if found {
		d.slots[slot] = obj
		return
	}
	if d.used >= len(d.slots)*7/8 {
		d.rebuild(d.count*3/2 + 8)
		slot, _ = d.find(name)
	}
	d.slots[slot] = obj
	d.used++
	d.count++
}

// remove removes the object of a name, if there is one.
func (d *deliveredObjects) remove(name types.NamespacedName) {
	slot, found := d.find(name)
	if !found {
		return
	}
	d.slots[slot] = removedObject{}
	d.count--
	if d.count == 0 {
		d.slots, d.used = nil, 0
	}
}

// all iterates over the objects, in no particular order. The caller may remove objects meanwhile, and must not add
// any.
func (d *deliveredObjects) all() iter.Seq[any] {
	return func(yield func(any) bool) {
		for _, obj := range d.slots {
			if isObject(obj) && !yield(obj) {
				return
			}
		}
	}
}

// find returns the slot of the object of a name. If there is no such object, it returns the empty slot at which the
// search has ended, or nothing useful if the table has no slots.
func (d *deliveredObjects) find(name types.NamespacedName) (slot int, found bool) {
	size := len(d.slots)
	if size == 0 {
		return 0, false
	}
	slot = int(d.hash(name) % uint64(size))
	for d.slots[slot] != nil {
		if obj := d.slots[slot]; isObject(obj) && nameOf(obj) == name {
			return slot, true
		}
		slot++
		if slot == size {
			slot = 0
		}
	}
	return slot, false
}

// rebuild makes the table anew, with so many slots, and without the marks of objects that were removed.
func (d *deliveredObjects) rebuild(size int) {
	old := d.slots
	d.slots = make([]any, size)
	d.used = d.count
	for _, obj := range old {
		if isObject(obj) {
			slot, _ := d.find(nameOf(obj))
			d.slots[slot] = obj
		}
	}
}

func isObject(slot any) bool {
	return slot != nil && slot != removedObject{}
}

// nameOf returns the name of an object.
func nameOf(obj any) types.NamespacedName {
	name, _ := identityOf(obj)
	return name
}
