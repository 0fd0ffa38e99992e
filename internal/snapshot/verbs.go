// SPDX-License-Identifier: Apache-2.0

package snapshot

// Verbs is a set of those verbs that an API server has for resources (toDiscoveryKubeVerb
// in k8s.io/apiserver/pkg/endpoints). It knows no others, so a Resource takes no more
// memory for it, whatever a server sends.
type Verbs uint16

// With returns v with verb, if that is one of the verbs.
func (v Verbs) With(verb string) Verbs {
	switch verb { // much faster than a search, and most of a document is verbs
	case "create":
		v |= 1 << 0
	case "delete":
		v |= 1 << 1
	case "deletecollection":
		v |= 1 << 2
	case "get":
		v |= 1 << 3
	case "list":
		v |= 1 << 4
	case "patch":
		v |= 1 << 5
	case "proxy":
		v |= 1 << 6
	case "update":
		v |= 1 << 7
	case "watch":
		v |= 1 << 8
	}
	return v
}

// Names lists the verbs of v, sorted. The slice is the caller's.
func (v Verbs) Names() []string {
	var names []string
	for _, verb := range []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"} {
		if v.With(verb) == v {
			names = append(names, verb)
		}
	}
	return names
}
