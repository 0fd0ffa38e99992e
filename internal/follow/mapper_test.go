// SPDX-License-Identifier: Apache-2.0

package follow_test

import (
	"context"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/follow"
)

var widget = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}

// namespacedWidget and clusterScopedWidget are mappings to different paths.
func namespacedWidget() *meta.RESTMapping    { return widgetIn(meta.RESTScopeNamespace) }
func clusterScopedWidget() *meta.RESTMapping { return widgetIn(meta.RESTScopeRoot) }

func widgetIn(scope meta.RESTScope) *meta.RESTMapping {
	resource := widget.GroupVersion().WithResource("widgets")
	return &meta.RESTMapping{GroupVersionKind: widget, Resource: resource, Scope: scope}
}

// server is a mapper that is followed, and what its server serves.
type server struct {
	meta.RESTMapper
	follow.Source

	served     *meta.RESTMapping // nil: the kind is not served
	generation uint64
	kindsAt    []string // the kinds that have the resource
	lookups    int
	confirms   int
}

func (s *server) RESTMapping(schema.GroupKind, ...string) (*meta.RESTMapping, error) {
	s.lookups++
	return s.Known(widget)
}

func (s *server) Known(schema.GroupVersionKind) (*meta.RESTMapping, error) {
	if s.served == nil {
		return nil, &meta.NoKindMatchError{GroupKind: widget.GroupKind()}
	}
	return s.served, nil
}

func (s *server) Confirm(context.Context, schema.GroupVersionKind, follow.Wait) (*meta.RESTMapping, error) {
	s.confirms++
	return s.Known(widget)
}

func (s *server) Generation() uint64 { return s.generation }

func (s *server) KindsAt(schema.GroupVersionResource) []string { return s.kindsAt }

// serves changes what is served.
func (s *server) serves(mapping *meta.RESTMapping) {
	s.served = mapping
	s.generation++
}

// mapperTest is a mapper for a client, which has used a kind, and its server.
type mapperTest struct {
	*follow.Mapper
	*server
	t *testing.T
}

func newMapperTest(t *testing.T, used *meta.RESTMapping) *mapperTest {
	t.Helper()
	s := &server{}
	followed := &follow.Followed{Source: s}
	before := follow.FollowedOf
	follow.FollowedOf = func(meta.RESTMapper) *follow.Followed { return followed }
	t.Cleanup(func() { follow.FollowedOf = before })
	m := &mapperTest{Mapper: follow.Of(s, follow.WaitBriefly), server: s, t: t}
	if used != nil {
		m.serves(used)
		m.Remember(used)
	}
	return m
}

// has fails the test unless requests are sent with a mapping.
func (m *mapperTest) has(want *meta.RESTMapping, when string) {
	m.t.Helper()
	got, err := m.Mapping(widget)
	if err != nil || follow.Differ(got, want) {
		m.t.Errorf("%s: requests are sent with %v, %v; want %v", when, got, err, want)
	}
}

// lookedUp fails the test unless there were so many lookups since it was called last.
func (m *mapperTest) lookedUp(want int, when string) {
	m.t.Helper()
	if m.lookups != want {
		m.t.Errorf("%s: %d lookups, want %d", when, m.lookups, want)
	}
	m.lookups = 0
}

// Requests for a kind that is missing go on with the mapping of before, so that the server answers them. Each lookup of
// such a kind reads the server: so there is one in a generation.
func TestMissingKindIsLookedUpOnceInAGeneration(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())

	m.serves(nil)
	m.has(namespacedWidget(), "the kind was removed")
	m.has(namespacedWidget(), "the same again")
	m.lookedUp(1, "twice in one generation")

	m.serves(clusterScopedWidget())
	m.has(clusterScopedWidget(), "the kind was re-created")
	m.lookedUp(1, "in the next generation")
}

// A missing kind that a lookup finds again counts as found: that an object is not found costs no read, and the mapping
// of before is that of the last request that was answered.
func TestMissingKindThatALookupFindsAgainIsFound(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	m.serves(nil)
	m.has(namespacedWidget(), "the kind was removed")
	m.serves(clusterScopedWidget())
	m.has(clusterScopedWidget(), "the kind was re-created")

	now, err := m.NewMapping(context.Background(), clusterScopedWidget(), follow.ReplyNotFound)
	if now != nil || err != nil || m.confirms > 0 {
		t.Errorf("an object is not found: %v, %v after %d reads; want nothing, after none", now, err, m.confirms)
	}

	m.serves(namespacedWidget())
	m.Remember(namespacedWidget())
	m.serves(nil)
	m.has(namespacedWidget(), "the kind was removed after a request with another mapping")
}

// A kind for which no request was answered has no such mapping.
func TestUnusedKindThatIsMissingIsAnError(t *testing.T) {
	m := newMapperTest(t, nil)

	if _, err := m.Mapping(widget); !meta.IsNoMatchError(err) {
		t.Errorf("%v, want NoMatch", err)
	}
}

// The mapping of before is that of the last request that was answered.
func TestLastAnsweredRequestCounts(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	m.serves(clusterScopedWidget())
	m.Remember(clusterScopedWidget())

	m.serves(nil)
	m.has(clusterScopedWidget(), "the kind was removed")
}

// That something was not found means the object: no read is made.
func TestNotFoundOfAServedKindMeansTheObject(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	m.serves(clusterScopedWidget())

	now, err := m.NewMapping(context.Background(), namespacedWidget(), follow.ReplyNotFound)
	if now != nil || err != nil || m.confirms > 0 {
		t.Errorf("%v, %v after %d reads; want nothing, after none", now, err, m.confirms)
	}
}

// For a missing kind nothing speaks for the path: a read tells.
func TestNotFoundOfAMissingKindMeansThePath(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	m.serves(nil)
	m.has(namespacedWidget(), "the kind was removed")

	_, err := m.NewMapping(context.Background(), namespacedWidget(), follow.ReplyNotFound)
	if !meta.IsNoMatchError(err) || m.confirms != 1 {
		t.Errorf("%v after %d reads; want NoMatch after one", err, m.confirms)
	}
}

// What is known costs no read.
func TestContradictedMappingIsReplacedByWhatIsKnown(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	m.serves(clusterScopedWidget())

	now, err := m.NewMapping(context.Background(), namespacedWidget(), follow.ReplyContradicts)
	if err != nil || now == nil || follow.Differ(now, clusterScopedWidget()) {
		t.Errorf("%v, %v; want %v", now, err, clusterScopedWidget())
	}
	if m.confirms > 0 {
		t.Errorf("%d reads, want none", m.confirms)
	}
}

// A reply may contradict what the mapper knows, too. If a read shows the same, there is no other mapping.
func TestContradictedMappingThatIsConfirmedStays(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())

	now, err := m.NewMapping(context.Background(), namespacedWidget(), follow.ReplyContradicts)
	if now != nil || err != nil || m.confirms != 1 {
		t.Errorf("%v, %v after %d reads; want no other mapping, after one", now, err, m.confirms)
	}
}

// A missing kind that is found by now is looked up again, also in the generation in which a lookup did not find it.
func TestMissingKindThatIsFoundIsLookedUpAgain(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	m.serves(nil)
	m.has(namespacedWidget(), "the kind was removed")
	m.served = clusterScopedWidget() // before the generation tells

	now, err := m.NewMapping(context.Background(), namespacedWidget(), follow.ReplyNotFound)
	if err != nil || now == nil || follow.Differ(now, clusterScopedWidget()) {
		t.Errorf("%v, %v; want %v", now, err, clusterScopedWidget())
	}
}

// A request that would reach another kind is refused. If no kind has the resource, the server answers.
func TestRequestsForTheResourceOfAnotherKindAreRefused(t *testing.T) {
	m := newMapperTest(t, namespacedWidget())
	for _, test := range []struct {
		kindsAt []string
		refused bool
	}{
		{[]string{"Widget"}, false},
		{nil, false},
		{[]string{"Gadget"}, true},
		{[]string{"Gadget", "Widget"}, false},
	} {
		m.kindsAt = test.kindsAt
		if why := m.Refuses(namespacedWidget(), "default"); (why != "") != test.refused {
			t.Errorf("the resource is that of %v: %q; want that it is refused: %t", test.kindsAt, why, test.refused)
		}
	}
}

// Whoever only asks for the mapping of a kind, as a cache, makes its scope known to all who follow the mapper.
func TestKnownMappingNotesTheScope(t *testing.T) {
	m := newMapperTest(t, nil)
	m.serves(namespacedWidget())
	if _, err := m.KnownMapping(widget); err != nil {
		t.Fatal(err)
	}
	if !m.WasNamespaced(widget.GroupKind()) {
		t.Error("the kind does not count as namespaced")
	}
	if why := m.Refuses(clusterScopedWidget(), "default"); why == "" {
		t.Error("a write in a namespace is not refused once the kind is cluster-scoped")
	}
}
