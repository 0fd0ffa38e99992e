// SPDX-License-Identifier: Apache-2.0

//go:build go1.24

package share

import (
	"runtime"
	"sync"
	"weak"
)

// pool keeps one copy of each value, as long as somebody uses it.
type pool[K comparable, V any] struct {
	mu     sync.Mutex
	values map[K]weak.Pointer[V]
}

func (p *pool[K, V]) get(key K) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.values[key].Value()
}

// put keeps value under key and returns it. If key has a value already, put returns that.
func (p *pool[K, V]) put(key K, value *V) *V {
	p.mu.Lock()
	defer p.mu.Unlock()
	if other := p.values[key].Value(); other != nil {
		return other
	}
	if p.values == nil {
		p.values = map[K]weak.Pointer[V]{}
	}
	p.values[key] = weak.Make(value)
	runtime.AddCleanup(value, p.forget, key)
	return value
}

// forget drops key after its value has gone, unless another took its place.
func (p *pool[K, V]) forget(key K) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.values[key].Value() == nil {
		delete(p.values, key)
	}
}
