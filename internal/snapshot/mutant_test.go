// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Each mutant answers wrongly in one way. TestOracleCatchesMutants shows that the
// oracle would see it.

// worstVersion answers a lookup without a version from the last version of the group.
type worstVersion struct{ *Snapshot }

func (m worstVersion) RESTMapping(gk schema.GroupKind, versions []string) (*meta.RESTMapping, bool, error) {
	if all, settled, err := m.RESTMappings(gk, nil); err == nil && len(versions) == 0 {
		return all[len(all)-1], settled, nil
	}
	return m.Snapshot.RESTMapping(gk, versions)
}

// otherScope takes every kind for namespaced.
type otherScope struct{ *Snapshot }

func (m otherScope) RESTMapping(gk schema.GroupKind, versions []string) (*meta.RESTMapping, bool, error) {
	mapping, settled, err := m.Snapshot.RESTMapping(gk, versions)
	if mapping != nil {
		mapping.Scope = meta.RESTScopeNamespace
	}
	return mapping, settled, err
}

// otherOrder lists the kinds from the end.
type otherOrder struct{ *Snapshot }

func (m otherOrder) KindsFor(query schema.GroupVersionResource) ([]schema.GroupVersionKind, bool, error) {
	kinds, settled, err := m.Snapshot.KindsFor(query)
	slices.Reverse(kinds)
	return kinds, settled, err
}

// otherErrorType wraps the errors of KindFor: the text stays.
type otherErrorType struct{ *Snapshot }

func (m otherErrorType) KindFor(query schema.GroupVersionResource) (schema.GroupVersionKind, bool, error) {
	kind, settled, err := m.Snapshot.KindFor(query)
	if err != nil {
		err = fmt.Errorf("%w", err)
	}
	return kind, settled, err
}

// otherErrorText forgets in its errors which versions were asked for.
type otherErrorText struct{ *Snapshot }

func (m otherErrorText) RESTMappings(gk schema.GroupKind, versions []string) ([]*meta.RESTMapping, bool, error) {
	mappings, settled, err := m.Snapshot.RESTMappings(gk, versions)
	if err != nil {
		err = noKind(gk, nil)
	}
	return mappings, settled, err
}

// neverAmbiguous takes the first of several resources.
type neverAmbiguous struct{ *Snapshot }

func (m neverAmbiguous) ResourceFor(query schema.GroupVersionResource) (schema.GroupVersionResource, bool, error) {
	resource, settled, err := m.Snapshot.ResourceFor(query)
	if meta.IsAmbiguousError(err) {
		all, _, _ := m.ResourcesFor(query)
		return all[0], settled, nil
	}
	return resource, settled, err
}

// anyResource takes, among the answers that depend on map order, one that is not possible.
type anyResource struct {
	*Snapshot
	doc document
}

func (m anyResource) ResourceFor(gvr schema.GroupVersionResource) (schema.GroupVersionResource, bool, error) {
	resource, settled, err := m.Snapshot.ResourceFor(gvr)
	if m.doc.mapOrdered(query{method: resourceFor, gvr: gvr}) != nil {
		resource.Resource += "s"
	}
	return resource, settled, err
}

// caseSensitive does not put singularized names in lower case.
type caseSensitive struct{ *Snapshot }

func (m caseSensitive) ResourceSingularizer(resource string) (string, bool, error) {
	if resource != strings.ToLower(resource) {
		resource += "-"
	}
	return m.Snapshot.ResourceSingularizer(resource)
}

// sharedAnswer hands out the same slice every time.
type sharedAnswer struct {
	*Snapshot
	answers map[schema.GroupVersionResource][]schema.GroupVersionResource
}

func (m sharedAnswer) ResourcesFor(query schema.GroupVersionResource) ([]schema.GroupVersionResource, bool, error) {
	if resources, ok := m.answers[query]; ok {
		return resources, true, nil
	}
	resources, settled, err := m.Snapshot.ResourcesFor(query)
	if err == nil {
		m.answers[query] = resources
	}
	return resources, settled, err
}

// settledAbsence reports that no read is needed, for every lookup.
type settledAbsence struct{ *Snapshot }

func (m settledAbsence) KindsFor(query schema.GroupVersionResource) ([]schema.GroupVersionKind, bool, error) {
	kinds, _, err := m.Snapshot.KindsFor(query)
	return kinds, true, err
}

// neverSettled asks the server about everything.
type neverSettled struct{ *Snapshot }

func (m neverSettled) KindFor(query schema.GroupVersionResource) (schema.GroupVersionKind, bool, error) {
	kind, _, err := m.Snapshot.KindFor(query)
	return kind, false, err
}

// oldIndex looks names up as they were before the last group came.
type oldIndex struct{ *Snapshot }

func withOldIndex(d document) lookups {
	s := d.snapshot()
	if len(d) > 1 {
		s.names = d[:len(d)-1].snapshot().indexed().names
	}
	return oldIndex{s}
}

func TestOracleCatchesMutants(t *testing.T) {
	mutants := map[string]maker{
		"worst version":     func(d document) lookups { return worstVersion{d.snapshot()} },
		"other scope":       func(d document) lookups { return otherScope{d.snapshot()} },
		"other order":       func(d document) lookups { return otherOrder{d.snapshot()} },
		"other error type":  func(d document) lookups { return otherErrorType{d.snapshot()} },
		"other error text":  func(d document) lookups { return otherErrorText{d.snapshot()} },
		"never ambiguous":   func(d document) lookups { return neverAmbiguous{d.snapshot()} },
		"any resource":      func(d document) lookups { return anyResource{d.snapshot(), d} },
		"case sensitive":    func(d document) lookups { return caseSensitive{d.snapshot()} },
		"settled absence":   func(d document) lookups { return settledAbsence{d.snapshot()} },
		"never settled":     func(d document) lookups { return neverSettled{d.snapshot()} },
		"old index":         withOldIndex,
		"other group order": func(d document) lookups { d = d.clone(); slices.Reverse(d); return d.snapshot() },
		"no preference": func(d document) lookups {
			d = d.clone()
			for i := range d {
				d[i].preferred = ""
			}
			return d.snapshot()
		},
		"no second group": func(d document) lookups { return d[:min(len(d), 1)].snapshot() },
		"subresources": func(d document) lookups {
			d = d.clone()
			for i := range d {
				for j := range d[i].versions {
					for k := range d[i].versions[j].resources {
						r := &d[i].versions[j].resources[k]
						r.Name, _, _ = strings.Cut(r.Name, "/")
					}
				}
			}
			return d.snapshot()
		},
	}
	for name, mutant := range mutants {
		t.Run(name, func(t *testing.T) {
			if compareRandom(rand.New(rand.NewPCG(1, 0)), documentsPerSeed, mutant, new(tally)) == nil {
				t.Fatal("not caught")
			}
		})
	}
	t.Run("shared answer", func(t *testing.T) {
		shared := func(d document) lookups {
			return sharedAnswer{d.snapshot(), map[schema.GroupVersionResource][]schema.GroupVersionResource{}}
		}
		if compareRandom(rand.New(rand.NewPCG(1, 0)), documentsPerSeed, shared, new(tally)) == nil {
			t.Fatal("not caught")
		}
	})
}
