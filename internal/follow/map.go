// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"maps"
	"sync"
	"sync/atomic"
)

// Map is a map for many readers and few writers, such as one by kind. Readers take no lock, and allocate
// nothing, as they do with a sync.Map whose key is a struct. The zero Map is empty.
type Map[K comparable, V any] struct {
	now atomic.Pointer[map[K]V] // replaced, and never changed; nil: empty
	mu  sync.Mutex              // of those who replace it
}

// All returns all keys and values. The caller must not change the map.
func (m *Map[K, V]) All() map[K]V {
	if now := m.now.Load(); now != nil {
		return *now
	}
	return nil
}

// Get returns the value of a key, or the zero value.
func (m *Map[K, V]) Get(key K) V { return m.All()[key] }

// Store sets the value of a key.
func (m *Map[K, V]) Store(key K, value V) {
	m.change(func(next map[K]V) { next[key] = value })
}

// LoadOrStore returns the value of a key, which is the given one if there was none.
func (m *Map[K, V]) LoadOrStore(key K, value V) V {
	actual, ok := m.All()[key]
	if ok {
		return actual
	}
	m.change(func(next map[K]V) {
		if actual, ok = next[key]; !ok {
			next[key], actual = value, value
		}
	})
	return actual
}

// Delete removes a key.
func (m *Map[K, V]) Delete(key K) {
	m.change(func(next map[K]V) { delete(next, key) })
}

func (m *Map[K, V]) change(change func(map[K]V)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := map[K]V{}
	maps.Copy(next, m.All())
	change(next)
	m.now.Store(&next)
}
