// SPDX-License-Identifier: Apache-2.0

//go:build !go1.24

package share

// pool shares nothing: Go 1.23 has no weak pointers, and a strong registry would
// keep every document for ever.
type pool[K comparable, V any] struct{}

func (*pool[K, V]) get(K) *V             { return nil }
func (*pool[K, V]) put(_ K, value *V) *V { return value }
