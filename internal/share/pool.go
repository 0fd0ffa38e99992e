// SPDX-License-Identifier: Apache-2.0

//go:build go1.24

package share

import (
	"runtime"
	"sync"
	"weak"
)

// pool keeps one copy of each value, as long as somebody uses it.
type pool[V any] struct {
	mu     sync.Mutex
	values map[Key]weak.Pointer[V]
}

// Get returns the value of key. It calls make only if nobody uses that value now.
func (p *pool[V]) Get(key Key, make func() (*V, error)) (*V, error) {
	p.mu.Lock()
	value := p.values[key].Value()
	p.mu.Unlock()
	if value != nil {
		return value, nil
	}
	value, err := make()
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.values[key].Value(); other != nil {
		return other, nil
	}
	if p.values == nil {
		p.values = map[Key]weak.Pointer[V]{}
	}
	p.values[key] = weak.Make(value)
	runtime.AddCleanup(value, p.forget, key)
	return value, nil
}

// forget drops a key after its value was freed, unless another one has taken its place.
func (p *pool[V]) forget(key Key) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.values[key].Value() == nil {
		delete(p.values, key)
	}
}
