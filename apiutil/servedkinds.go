// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
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
// case does not matter. So it finds a kind of which only the name is known.
//
// It sends no request if all that is served is known and current, as for any lookup. Otherwise it reads the server
// first, until ctx ends. If that fails, or single versions can't be read, it returns what is known of the rest
// together with an error; of versions it is an *ErrResourceDiscoveryFailed. What it returns belongs to the caller.
// The mapper keeps nothing of it: a kind takes about 200 bytes, of what its server may have at most in
// MaxResponseBytes.
func (m *DynamicRESTMapper) Served(ctx context.Context, kinds ...string) (ServedAPIs, error) {
	some := cmp.Or(m.reloader.Snapshot().SomeResource(), "pods")
	_, err := m.ResourcesForWithContext(ctx, schema.GroupVersionResource{Resource: some})
	if meta.IsNoMatchError(err) { // then all was read
		err = nil
	}
	s := m.reloader.Snapshot()
	all := ServedAPIs{Generation: s.Generation()}
	for _, k := range s.KindsWhere(func(r *snapshot.Resource) bool {
		return len(kinds) == 0 || slices.ContainsFunc(kinds, func(kind string) bool { return strings.EqualFold(kind, r.Kind) })
	}) {
		all.Kinds = append(all.Kinds, ServedKind{k.Mapping, k.Verbs.Names()})
	}
	if failed := failedVersions(s); len(failed) > 0 {
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
// or if nothing of that name is served. It sends no request. The error of a lookup itself stays upstream's; the
// mapper writes the hint to its Logger at level 1, once while the served API is the same, and to the debug page.
func (m *DynamicRESTMapper) NoMatchHint(err error) string {
	var kind *meta.NoKindMatchError
	var resource *meta.NoResourceMatchError
	var named func(*snapshot.Resource) bool
	switch {
	case errors.As(err, &kind):
		named = func(r *snapshot.Resource) bool { return strings.EqualFold(r.Kind, kind.GroupKind.Kind) }
	case errors.As(err, &resource):
		name := strings.ToLower(resource.PartialResource.Resource)
		named = func(r *snapshot.Resource) bool { return r.Name == name || r.Singular == name }
	default:
		return ""
	}
	var names []string
	places := map[string][]string{}
	for _, k := range m.reloader.Snapshot().KindsWhere(named) {
		gvk := k.Mapping.GroupVersionKind
		if places[gvk.Kind] == nil {
			names = append(names, gvk.Kind)
		}
		places[gvk.Kind] = append(places[gvk.Kind], gvk.GroupVersion().String())
	}
	for i, name := range names {
		names[i] = name + ": " + strings.Join(shortened(places[name]), ", ")
	}
	return strings.Join(shortened(names), "; ")
}

// tellNoMatch tells of a lookup that found nothing. Only reports call it.
func (m *DynamicRESTMapper) tellNoMatch(q snapshot.Query, err error) {
	hint := m.NoMatchHint(err)
	m.tell(levelReads, "looked up what is not served", "group", q.Group, "versions", q.Versions, sought(q), q.Name, "servedAs", hint)
	if now := m.reloader.Snapshot().Generation(); m.hinted.generation != now || len(m.hinted.told) >= mostHints {
		m.hinted.generation, m.hinted.told = now, map[string]bool{}
	}
	if text := err.Error(); hint != "" && !m.hinted.told[text] {
		m.hinted.told[text] = true
		m.logger().V(levelHints).Info("looked up a kind where it is not served", "error", text, "servedAs", hint)
	}
}

const (
	levelHints = 1   // of the lines about kinds that are served elsewhere
	mostHints  = 100 // are remembered
)
