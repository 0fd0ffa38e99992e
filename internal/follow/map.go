// SPDX-License-Identifier: Apache-2.0

package follow

import "sync"

// Map is a map that many goroutines may use at once, such as one by kind. Unlike with a sync.Map whose key is a struct,
// readers allocate nothing. The zero Map is empty.
type Map[K comparable, V any] struct {
	mu  sync.RWMutex
	all map[K]V
}

// Get returns the value of a key, or the zero value.
func (m *Map[K, V]) Get(key K) V {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.all[key]
}

// Store sets the value of a key.
func (m *Map[K, V]) Store(key K, value V) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.store(key, value)
}

// LoadOrStore returns the value of a key, which is the given one if there was none.
func (m *Map[K, V]) LoadOrStore(key K, value V) V {
	m.mu.Lock()
	defer m.mu.Unlock()
	if actual, ok := m.all[key]; ok {
		return actual
	}
	m.store(key, value)
	return value
}

func (m *Map[K, V]) store(key K, value V) {
	if m.all == nil {
		m.all = map[K]V{}
	}
	m.all[key] = value
}
