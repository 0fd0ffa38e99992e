// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// ServedKind is one kind in one version of one group.
type ServedKind struct {
	Mapping meta.RESTMapping
	Verbs   []string // what clients can do with its resource, as in APIChange
}

// ServedAPIs is what a server serves.
type ServedAPIs struct {
	Generation uint64       // what is served is the same as long as the mapper's Generation is
	Kinds      []ServedKind // in the server's order; a kind is there once for each version
}

// Served returns what the server serves: all kinds, or, in any group and version, those of the given names, whose
// case does not matter. So it finds a kind of which only the name is known. Without a name, which an empty slice is,
// too, it returns everything.
//
// It sends no request if all that is served is known and current, as for any lookup. Otherwise it reads the server
// first, until ctx ends. If that fails, or single versions can't be read, it returns what is known of the rest
// together with an error; of versions that is an *ErrResourceDiscoveryFailed. What is known may be as old as MaxAge: an
// empty result does not prove that a kind is absent, as false from IsServed does. What it returns belongs to the caller,
// and the mapper keeps nothing of it. It takes some 300 bytes a kind.
func (m *DynamicRESTMapper) Served(ctx context.Context, names ...string) (ServedAPIs, error) {
	some := "pods"
	m.reloader.Snapshot().KindsWhere(func(r *snapshot.Resource) bool { some = r.Name; return false })
	q := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: some})
	q.All = true // current only if all groups are
	found := m.reloader.Lookup(ctx, q, func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := s.ResourcesFor(schema.GroupVersionResource{Resource: some})
		return err == nil, current
	})
	m.noteUse()
	var err error
	if found.Err != nil {
		err = lookupError(q, nil, found.Err)
	}
	s := m.reloader.Snapshot()
	all := ServedAPIs{Generation: s.Generation()}
	for _, k := range s.KindsWhere(func(r *snapshot.Resource) bool {
		return len(names) == 0 || slices.ContainsFunc(names, func(name string) bool { return strings.EqualFold(name, r.Kind) })
	}) {
		all.Kinds = append(all.Kinds, ServedKind{k.Mapping, k.Verbs.Names()})
	}
	failed := failedVersions(s)
	for gv, why := range found.Failed { // of those whose read has had no answer yet
		if failed[gv] == nil {
			failed[gv] = why
		}
	}
	if len(failed) > 0 {
		err = errors.Join(err, &failed)
	}
	return all, err
}

// failedVersions returns the versions whose last read failed, with the errors.
func failedVersions(s *snapshot.Snapshot) ErrResourceDiscoveryFailed {
	failed := ErrResourceDiscoveryFailed{}
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			if v.Err != nil {
				failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	return failed
}

// NoMatchHint returns where the kind, or the resource, of a NoMatch is served instead, as far as the mapper knows,
// for a person who reads the error: "Widget: example.com/v2, example.org/v1". It returns "" if err has no NoMatch,
// or if nothing of that name is known to be served. It sends no request, and the text is for people only. The error of a lookup itself stays upstream's; the
// mapper writes the hint to its Logger at level 1, once while the served API is the same, and to the debug page.
func (m *DynamicRESTMapper) NoMatchHint(err error) string {
	var kind *meta.NoKindMatchError
	var resource *meta.NoResourceMatchError
	var places []string
	last := ""
	for _, k := range m.reloader.Snapshot().KindsWhere(func(r *snapshot.Resource) bool {
		if errors.As(err, &kind) {
			return strings.EqualFold(r.Kind, kind.GroupKind.Kind)
		}
		if !errors.As(err, &resource) {
			return false
		}
		name := resource.PartialResource.Resource
		return strings.EqualFold(r.Name, name) || strings.EqualFold(r.Singular, name)
	}) {
		gvk := k.Mapping.GroupVersionKind
		place := gvk.GroupVersion().String()
		if gvk.Kind != last { // the case may differ, or, of a resource, all
			place = gvk.Kind + ": " + place
		}
		last, places = gvk.Kind, append(places, place)
	}
	return strings.Join(shortened(places), ", ")
}

// tellNoMatch tells of a lookup that found nothing. Only reports call it.
func (m *DynamicRESTMapper) tellNoMatch(q snapshot.Query, err error) {
	hint, text, now := m.NoMatchHint(err), err.Error(), m.reloader.Snapshot().Generation()
	m.tell(levelReads, "looked up what is not served", "group", q.Group, "versions", q.Versions, sought(q), q.Name, "servedAs", hint)
	if hint == "" || m.hinted[text] == now {
		return
	}
	if m.hinted == nil || len(m.hinted) >= mostHints {
		m.hinted = map[string]uint64{}
	}
	m.hinted[text] = now
	m.logger().V(levelHints).Info("looked up a kind where it is not served", "error", text, "servedAs", hint)
}

const (
	levelHints = 1   // of the lines about kinds that are served elsewhere
	mostHints  = 100 // are remembered
)
