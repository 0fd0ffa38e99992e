// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestSettled goes through the lookups on a server that lists versions and leaves
// it to the mapper to read them. The core group prefers v1; a prefers v2, of which
// nothing is known, while v1 was read and v3 was not; in b v1beta1 was read and v1
// failed; c is complete, and c.longer but for a version that failed.
func TestSettled(t *testing.T) {
	lists := Resource{Name: "widgets", Singular: "widget", Kind: "Widget"}
	s := after(
		NewGroup("a", "v2", []Version{read("v1", foos), listed("v2"), listed("v3")}),
		NewGroup("b", "v1", []Version{failed("v1"), read("v1beta1", bars)}),
		group("c", read("v1", lists), read("v2", lists)),
		group("c.longer", read("v1", lists), failed("v2")),
		group("", read("v1", foos), listed("v2")),
	)
	kind := func(m method, group, kind string, versions ...string) query {
		return query{method: m, gk: schema.GroupKind{Group: group, Kind: kind}, versions: versions}
	}
	resource := func(m method, group, version, resource string) query {
		return query{method: m, gvr: schema.GroupVersionResource{Group: group, Version: version, Resource: resource}}
	}
	allRead := s.WithVersion("a", "v2", tableOf(), 2).WithVersion("a", "v3", tableOf(), 3).WithVersion("", "v2", tableOf(), 4)
	tests := []struct {
		name  string
		query query
		// whether the answer is settled before, and after the versions that are
		// listed alone were read; v1 of b still fails
		lazily, fully bool
	}{
		{"a version that was read", kind(restMapping, "a", "Foo", "v1"), true, true},
		{"a version that was not, first", kind(restMapping, "a", "Foo", "v2", "v1"), false, true},
		{"a version that was not, second", kind(restMapping, "a", "Foo", "v1", "v2"), true, true},
		{"a version that is not listed, first", kind(restMapping, "a", "Foo", "v9", "v1"), true, true},
		{"a version that failed, first", kind(restMapping, "b", "Bar", "v1", "v1beta1"), false, false},
		{"the preferred version was not read", kind(restMapping, "a", "Foo"), false, true},
		{"the preferred version failed", kind(restMapping, "b", "Bar"), false, false},
		{"the preferred version was read, another not", kind(restMapping, "", "Foo"), true, true},
		{"ignored versions", kind(restMapping, "a", "Foo", "", "__internal"), false, true},

		{"all versions", kind(restMappings, "a", "Foo"), false, true},
		{"all versions, one failed", kind(restMappings, "b", "Bar"), false, false},
		{"all versions, all read", kind(restMappings, "c", "Widget"), true, true},
		{"one version", kind(restMappings, "a", "Foo", "v1"), true, true},
		{"two versions, one not read", kind(restMappings, "a", "Foo", "v1", "v3"), false, true},

		{"full", resource(kindFor, "a", "v1", "foos"), true, true},
		{"full", resource(kindsFor, "a", "v1", "foos"), true, true},
		{"full", resource(resourceFor, "a", "v1", "foo"), true, true},
		{"full", resource(resourcesFor, "a", "v1", "foo"), true, true},

		{"one group, not all read", resource(kindFor, "a", "", "foos"), false, true},
		{"one group, not all read", resource(resourcesFor, "a", "", "foos"), false, true},
		{"one group, one version failed", resource(kindFor, "b", "", "bars"), false, false},
		{"one group", resource(kindFor, "c", "", "widgets"), true, true},
		{"one group", resource(kindsFor, "c", "", "widgets"), true, true},
		{"beginning of a group, one version failed", resource(kindFor, "c.l", "", "widgets"), true, true},

		{"core group", resource(kindFor, "", "v1", "foos"), true, true},
		{"core group", resource(resourceFor, "", "v1", "foos"), true, true},
		{"core group, and every other v1", resource(kindsFor, "", "v1", "foos"), false, true},
		{"core group, no version", resource(kindFor, "", "", "foos"), true, true},

		// b/v1 was tried: a search through all groups does without it.
		{"all groups", resource(kindFor, "", "", "bars"), false, true},
		{"all groups", resource(kindsFor, "", "", "bars"), false, true},
		{"all groups", resource(resourceFor, "", "", "bars"), false, true},
		{"all groups", resource(resourcesFor, "", "v1beta1", "bars"), false, true},
		{"all groups", query{method: resourceSingularizer, resource: "bars"}, false, true},
	}
	for _, test := range tests {
		t.Run(test.name+" "+test.query.method.String(), func(t *testing.T) {
			for name, state := range map[string]struct {
				s    *Snapshot
				want bool
			}{"lazily": {s, test.lazily}, "fully": {allRead, test.fully}, "outdated": {allRead.Reset(5), false}} {
				a, settled := test.query.ask(state.s)
				if a.err != nil {
					t.Errorf("%s: %v", name, a.err)
				}
				if settled != state.want {
					t.Errorf("read %s: %v settles %v: %v", name, test.query, a, settled)
				}
			}
		})
	}
}

// TestAbsenceIsNeverSettled, and a query that cannot have an answer is.
func TestAbsenceIsNeverSettled(t *testing.T) {
	s := after(group("a", read("v1", foos)))
	for m := range methods {
		q := query{
			method: m, gk: schema.GroupKind{Group: "a", Kind: "Bar"}, resource: "bars",
			gvr: schema.GroupVersionResource{Group: "a", Version: "v1", Resource: "bars"},
		}
		if a, settled := q.ask(s); settled || !isNoMatch(a.err) {
			t.Errorf("%v: settled %v, %v", m, settled, a)
		}
	}
	for _, m := range []method{kindFor, kindsFor, resourceFor, resourcesFor, resourceSingularizer} {
		if a, settled := (query{method: m}).ask(s); !settled || a.err == nil || isNoMatch(a.err) {
			t.Errorf("%v of nothing: settled %v, %v", m, settled, a)
		}
	}
}

// TestErrorsAreTheCallersOwn: what was asked may change afterwards.
func TestErrorsAreTheCallersOwn(t *testing.T) {
	versions := []string{"v1"}
	_, _, err := after(group("a", read("v1", foos))).RESTMapping(schema.GroupKind{Group: "a", Kind: "Bar"}, versions)
	before := err.Error()
	if versions[0] = "v2"; err.Error() != before {
		t.Errorf("%q became %q", before, err)
	}
}

// TestNewGroupDoesNotUnsettleOthers: the place of a new group matters only to lookups
// that search it.
func TestNewGroupDoesNotUnsettleOthers(t *testing.T) {
	s := after(group("a", read("v1", foos)), group("c", read("v1", bars))).WithVersion("b", "v1", tableOf("Foo"), 2)
	for group, want := range map[string]bool{"a": true, "c": true, "": false} {
		name := "foos"
		if group == "c" {
			name = "bars"
		}
		if _, settled, err := s.KindFor(schema.GroupVersionResource{Group: group, Resource: name}); settled != want || err != nil {
			t.Errorf("group %q: settled %v, error %v", group, settled, err)
		}
	}
}

// A version that a live list did not have may be another when it is listed again.
func TestVersionThatWasNotListed(t *testing.T) {
	for name, live := range map[string]bool{"of the document": false, "read live": true} {
		h := newHistory(false, "a/v2:Foo a/v1:Bar")
		if live {
			h.live("a/v2:Foo")
		}
		h.group("a", "v1")
		h.group("a", "v2", "v1")
		if h.settles("a", "Foo") || !h.settles("a", "Bar", "v1") {
			t.Errorf("%s: listed again, it settles: %v", name, h.settles("a", "Foo"))
		}
		if h.live("a/v2:Foo"); !h.settles("a", "Foo") {
			t.Errorf("%s: read again, it does not settle", name)
		}
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Error(err)
		}
	}
}
