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

// wrong answers wrongly in one way. TestOracleCatchesMutants shows that the oracle sees it.
type wrong struct {
	*Snapshot
	how    string
	doc    document
	shared map[schema.GroupVersionResource][]schema.GroupVersionResource
}

func (w wrong) RESTMapping(gk schema.GroupKind, versions []string) (*meta.RESTMapping, bool, error) {
	mapping, current, err := w.Snapshot.RESTMapping(gk, versions)
	if all, _, _ := w.Snapshot.RESTMappings(gk, nil); w.how == "worst version" && len(all) > 0 && len(versions) == 0 {
		mapping = all[len(all)-1]
	}
	if w.how == "other scope" && mapping != nil {
		mapping.Scope = meta.RESTScopeNamespace
	}
	return mapping, current, err
}

func (w wrong) RESTMappings(gk schema.GroupKind, versions []string) ([]*meta.RESTMapping, bool, error) {
	mappings, current, err := w.Snapshot.RESTMappings(gk, versions)
	if w.how == "other error text" && err != nil {
		err = noKind(gk, nil)
	}
	return mappings, current, err
}

func (w wrong) KindFor(query schema.GroupVersionResource) (schema.GroupVersionKind, bool, error) {
	kind, current, err := w.Snapshot.KindFor(query)
	if w.how == "other error type" && err != nil {
		err = fmt.Errorf("%w", err)
	}
	return kind, current && w.how != "never current", err
}

func (w wrong) KindsFor(query schema.GroupVersionResource) ([]schema.GroupVersionKind, bool, error) {
	kinds, current, err := w.Snapshot.KindsFor(query)
	if w.how == "other order" {
		slices.Reverse(kinds)
	}
	return kinds, current || w.how == "current absence", err
}

func (w wrong) ResourceFor(query schema.GroupVersionResource) (schema.GroupVersionResource, bool, error) {
	resource, current, err := w.Snapshot.ResourceFor(query)
	if w.how == "never ambiguous" && meta.IsAmbiguousError(err) {
		all, _, _ := w.Snapshot.ResourcesFor(query)
		resource, err = all[0], nil
	}
	if w.how == "any resource" && w.doc.mapOrdered(resourceFor.of(query)) != nil {
		resource.Resource += "s" // among the answers that depend on map order, one that is not possible
	}
	return resource, current, err
}

func (m method) of(gvr schema.GroupVersionResource) query { return query{method: m, gvr: gvr} }

func (w wrong) ResourcesFor(query schema.GroupVersionResource) ([]schema.GroupVersionResource, bool, error) {
	if resources, ok := w.shared[query]; ok && w.how == "shared answer" {
		return resources, true, nil
	}
	resources, current, err := w.Snapshot.ResourcesFor(query)
	if err == nil {
		w.shared[query] = resources
	}
	return resources, current, err
}

func (w wrong) ResourceSingularizer(resource string) (string, bool, error) {
	if w.how == "case sensitive" && resource != strings.ToLower(resource) {
		resource += "-"
	}
	return w.Snapshot.ResourceSingularizer(resource)
}

// misread returns what a mapper makes of a document that it reads wrongly.
func misread(d document, how string) *Snapshot {
	d = d.clone()
	for i := range d {
		if how == "no preference" {
			d[i].preferred = ""
		}
		for _, v := range d[i].versions {
			for k := range v.resources {
				if how == "subresources" {
					v.resources[k].Name, _, _ = strings.Cut(v.resources[k].Name, "/")
				}
			}
		}
	}
	switch how {
	case "other group order":
		slices.Reverse(d)
	case "no second group":
		d = d[:min(len(d), 1)]
	}
	s := d.snapshot()
	if how == "old index" && len(d) > 1 {
		s.names = d[:len(d)-1].snapshot().indexed().names
	}
	return s
}

func TestOracleCatchesMutants(t *testing.T) {
	for _, how := range []string{
		"worst version", "other scope", "other order", "other error type", "other error text", "never ambiguous", "any resource",
		"case sensitive", "shared answer", "current absence", "never current",
		"old index", "other group order", "no preference", "no second group", "subresources",
	} {
		t.Run(how, func(t *testing.T) {
			mutant := func(d document) lookups {
				return wrong{misread(d, how), how, d, map[schema.GroupVersionResource][]schema.GroupVersionResource{}}
			}
			if compareRandom(rand.New(rand.NewPCG(1, 0)), documentsPerSeed, mutant, new(tally)) == nil {
				t.Fatal("not caught")
			}
		})
	}
	sound := func(d document) lookups {
		return wrong{d.snapshot(), "", d, map[schema.GroupVersionResource][]schema.GroupVersionResource{}}
	}
	if failed := compareRandom(rand.New(rand.NewPCG(1, 0)), documentsPerSeed, sound, new(tally)); failed != nil {
		t.Errorf("without a fault: %v", failed)
	}
}
