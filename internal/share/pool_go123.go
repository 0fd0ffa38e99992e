// SPDX-License-Identifier: Apache-2.0

//go:build !go1.24

package share

// pool shares nothing: Go 1.23 has no weak pointers, and a registry of strong ones would keep every document until the
// process ends.
type pool[V any] struct{}

func (*pool[V]) Get(_ Key, make func() (*V, error)) (*V, error) { return make() }
