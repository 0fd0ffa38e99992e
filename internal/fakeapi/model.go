// SPDX-License-Identifier: Apache-2.0

package fakeapi

// A Group is an API group. The core group's name is empty.
type Group struct {
	Name      string
	Versions  []Version // in the order in which the server lists them
	Preferred string    // only in legacy documents; defaults to the first version
}

// A Version is one version of a group.
type Version struct {
	Name      string
	Resources []Resource

	// Stale marks a version whose APIService is down: Stale in the aggregated
	// document, 503 at its own path, an ordinary entry in the legacy list. If the
	// service answers 503, the real aggregated document drops the resources; if it
	// fails otherwise, the document keeps the last ones. The test may clear Resources.
	Stale bool
}

// A Resource is served as it is: nothing is filled in, because real servers leave out
// singular names, too.
type Resource struct {
	Name, Singular, Kind   string
	Namespaced             bool
	ShortNames, Categories []string
	Verbs                  []string // defaults to those of a custom resource
	Subresources           []string // such as "status"; "scale" is of kind autoscaling/v1 Scale

	// NoKind makes a parent that exists only for its subresources. Its aggregated entry
	// has no responseKind, and legacy lists do not have it.
	NoKind bool
}

func (g Group) preferred() string {
	if g.Preferred == "" && len(g.Versions) > 0 {
		return g.Versions[0].Name
	}
	return g.Preferred
}
