// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"math/bits"
	"slices"
)

// Verbs is a set of those verbs that an API server has for resources (toDiscoveryKubeVerb
// in k8s.io/apiserver/pkg/endpoints). It knows no others, so a Resource takes no more
// memory for it, whatever a server sends.
type Verbs uint16

// verbs are the members of Verbs, sorted.
var verbs = [...]string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"} //nolint:gochecknoglobals // Go has no constant arrays

// With returns v with verb, if that is one of the verbs.
func (v Verbs) With(verb string) Verbs {
	if i := slices.Index(verbs[:], verb); i >= 0 {
		v |= 1 << i
	}
	return v
}

// Names lists the verbs of v, sorted. The slice is the caller's.
func (v Verbs) Names() []string {
	names := make([]string, 0, bits.OnesCount16(uint16(v)))
	for i, verb := range verbs {
		if v&(1<<i) != 0 {
			names = append(names, verb)
		}
	}
	return names
}
