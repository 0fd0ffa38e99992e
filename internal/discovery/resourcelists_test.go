// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgo "k8s.io/client-go/discovery"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// listsOf returns the resource lists of a snapshot by version.
func listsOf(s *snapshot.Snapshot) map[schema.GroupVersion]*metav1.APIResourceList {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			if list := v.Table.ResourceList(); list != nil {
				lists[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = list
			}
		}
	}
	return lists
}

// What is kept is what client-go's discovery client returns, by whichever form of discovery it was read.
func TestResourceListsAreThoseOfClientGo(t *testing.T) {
	for name, forms := range map[string]fakeapi.Forms{
		"v2": fakeapi.Aggregated(), "v2beta1": fakeapi.V2Beta1Only(), "legacy": fakeapi.Legacy(),
	} {
		t.Run(name, func(t *testing.T) {
			server, via := newServer(oddities()...)
			server.SetForms(forms)
			c := newClient(t, via)
			c.KeepResourceLists()
			s := readDocument(t, c)
			if name == "legacy" {
				s = readLive(t, c, s)
			}
			if name == "v2beta1" {
				server.SetForms(fakeapi.Aggregated()) // newer versions of client-go do not ask for v2beta1
			}
			theirs, err := clientgo.NewDiscoveryClientForConfigAndClient(server.Config(), &http.Client{Transport: via})
			if err != nil {
				t.Fatal(err)
			}
			_, lists, _ := theirs.ServerGroupsAndResources() // some versions fail
			want := map[schema.GroupVersion]*metav1.APIResourceList{}
			for _, list := range lists {
				gv, err := schema.ParseGroupVersion(list.GroupVersion)
				if err != nil {
					t.Fatal(err)
				}
				want[gv] = list
			}
			if diff := cmp.Diff(want, listsOf(s)); diff != "" {
				t.Errorf("resource lists (-client-go's +ours):\n%s", diff)
			}
		})
	}
}

// A mapper without a discovery cache keeps none. With one, its next read of the document is no 304, and later ones are.
func TestResourceListsAreKeptOnceTheyAreWanted(t *testing.T) {
	server, via := newServer(fakeapi.Typical(2, 2, 2)...)
	c := newClient(t, via)
	before := readDocument(t, c)
	if lists := listsOf(before); len(lists) > 0 {
		t.Errorf("%d resource lists, which nobody wants", len(lists))
	}
	if was := c.KeepResourceLists(); was {
		t.Error("resource lists were kept before anybody wanted them")
	}
	server.TakeRequests()
	after := readDocument(t, c)
	again := readDocument(t, c)
	var codes []int
	for _, r := range server.TakeRequests() {
		codes = append(codes, r.Code)
	}
	if diff := cmp.Diff([]int{200, 200, 304, 304}, codes); diff != "" {
		t.Errorf("answers (-want +got):\n%s", diff)
	}
	if n := len(listsOf(after)); n != 1+2*2 {
		t.Errorf("%d resource lists; want one of each version", n)
	}
	if diff := cmp.Diff(dump(before), dump(after)); diff != "" {
		t.Errorf("lookups find something else (-before +after):\n%s", diff)
	}
	if after.Document() != again.Document() {
		t.Error("a document that is the same is another one")
	}
}

// Whoever gets a list from a discovery cache may change it, although it should not. Other mappers must not see that.
func TestResourceListsAreNotShared(t *testing.T) {
	_, via := newServer(fakeapi.Typical(1, 1, 1)...)
	core := schema.GroupVersion{Version: "v1"}
	a, b := newClient(t, via), newClient(t, via)
	a.KeepResourceLists()
	b.KeepResourceLists()
	ofA, ofB := listsOf(readDocument(t, a))[core], listsOf(readDocument(t, b))[core]
	if ofA == nil || ofA == ofB {
		t.Errorf("two mappers have the lists %p and %p; want one each", ofA, ofB)
	}
}

// A short name that changes is a change of the document, although no lookup needs it: what follows has the new list.
func TestResourceListsFollowTheDocument(t *testing.T) {
	widgets := func(short string) fakeapi.Group {
		return fakeapi.Group{Name: "example.com", Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{
			{Name: "widgets", Singular: "widget", Kind: "Widget", ShortNames: []string{short}},
		}}}}
	}
	server, via := newServer(widgets("wd"))
	c := newClient(t, via)
	c.KeepResourceLists()
	s := readDocument(t, c)
	generation := s.Generation()
	server.Put(widgets("wg"))
	doc, err := c.Document(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s = s.WithDocument(doc, 2)
	list := listsOf(s)[schema.GroupVersion{Group: "example.com", Version: "v1"}]
	if got := list.APIResources[0].ShortNames; len(got) != 1 || got[0] != "wg" {
		t.Errorf("short names %q; want wg", got)
	}
	if s.Generation() != generation {
		t.Error("the generation has moved, although no lookup is answered otherwise")
	}
}

// A document whose parts that no lookup needs are too many is read as ever, and has no resource lists.
func TestTooManyPartsOfResourcesAreNotKept(t *testing.T) {
	many := strings.Repeat(`{},`, maxKeptElements+1)
	document := aggregatedJSON(fmt.Sprintf(`{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[`+
		`{"resource":"rs","responseKind":{"kind":"R"},"subresources":[%s{}]}]}]}`, many))
	var found *groupList
	var err error
	took := allocated(func() { found, err = decodeDocument(document, namedPath, true) })
	if err != nil {
		t.Fatal(err)
	}
	table := found.groups[0].Versions()[0].Table
	if table == nil || table.ResourceList() != nil {
		t.Error("want the resources of the version, and no resource list")
	}
	if most := uint64(2 * len(document)); took > most {
		t.Errorf("a document of %d bytes has taken %d; want %d at most", len(document), took, most)
	}
}

// A list that cannot be read as a whole is not kept: a part of it would be taken for all. Lookups need less of it, and
// are answered.
func TestResourceListThatIsMalformedIsNotKept(t *testing.T) {
	gv := schema.GroupVersion{Group: "g", Version: "v1"}
	const short = `"shortNames":["a",7]`
	document := aggregatedJSON(`{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[` +
		`{"resource":"as","responseKind":{"kind":"A"}},{"resource":"bs","responseKind":{"kind":"B"},` + short + `}]}]}`)
	list := []byte(`{"kind":"APIResourceList","groupVersion":"g/v1","resources":[` +
		`{"name":"as","kind":"A"},{"name":"bs","kind":"B",` + short + `}]}`)

	read, err := decodeDocument(document, namedPath, true)
	if err != nil {
		t.Fatal(err)
	}
	ofDocument := read.groups[0].Versions()[0].Table
	ofList, err := decodeTable(list, gv, true)
	if err != nil {
		t.Fatal(err)
	}

	for from, table := range map[string]*snapshot.Table{"the document": ofDocument, "its own path": ofList} {
		if table == nil || table.ResourceList() != nil {
			t.Errorf("of %s: %v; want a table without a resource list", from, table)
		}
	}
}
