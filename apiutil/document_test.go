// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A document has news of a group only if it says something else than it said before.

// documentForms are the forms in which a document may come, with validators and
// without.
var documentForms = map[string]fakeapi.Forms{
	"protobuf": fakeapi.Aggregated(), "JSON": {V2: true, ETag: true}, "no ETag": {V2: true, Protobuf: true},
	"JSON, no ETag": {V2: true}, "v2beta1": fakeapi.V2Beta1Only(),
}

// eachDocument runs test with a mapper that is started and knows all of a server,
// in each form of document.
func eachDocument(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, documentForms, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			server := newServer(forms)
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
			readAll(t, m)
			stop := startMapper(t, m)
			synctest.Wait()
			test(t, server, m)
			stop()
		})
	})
}

// If a document changes in one group, that is no news of the other groups: what it says
// of them is as old as before.
func TestNewsOfAnotherGroupIsNoNews(t *testing.T) {
	const lag = time.Minute
	liveOnly := schema.GroupVersionKind{Group: "live.example.com", Version: "v1", Kind: "Live"}
	eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		s := subscribe(m)
		s.take(t)
		server.SetLag(fakeapi.PartDocument, lag)
		serve(server, newKind)
		time.Sleep(lag - 5*time.Second)
		s.want(t, "before the document has it")
		serve(server, lateKind)
		serve(server, liveOnly)
		wantServed(t, m, lateKind)
		s.want(t, "after a live read", "Added example.com/v2 Late -> lates, namespace")
		wantServed(t, m, liveOnly)
		s.want(t, "after a live read", "Added live.example.com/v1 Live -> lives, namespace")
		time.Sleep(20 * time.Second)
		wantServed(t, m, lateKind, newKind, liveOnly)
		if _, err := m.RESTMapping(lateKind.GroupKind()); err != nil {
			t.Error(err)
		}
		s.want(t, "when the document has the first alone", "Added new.example.com/v1 New -> news, namespace")
		time.Sleep(lag)
		wantServed(t, m, lateKind, newKind, liveOnly)
		s.want(t, "when it has all")
		s.close(t)
	})
}

// Subscribers hear of each change once, however late the document is.
func TestSubscribeBesideALaggingDocument(t *testing.T) {
	eachDocument(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		s := subscribe(m)
		s.take(t)
		server.SetLag(fakeapi.PartDocument, time.Minute)
		serve(server, lateKind)
		wantServed(t, m, lateKind)
		s.want(t, "a version that comes", "Added example.com/v2 Late -> lates, namespace")
		generation := m.Generation()
		time.Sleep(2 * time.Minute)
		s.want(t, "when the document has it")
		if m.Generation() != generation {
			t.Error("the generation has moved without a change")
		}
		server.RemoveVersion(lateKind.Group, lateKind.Version)
		m.ResetGroup(lateKind.Group)
		wantAbsent(t, m, lateKind)
		s.want(t, "a version that goes", "Removed example.com/v2 Late -> lates, namespace")
		generation = m.Generation()
		time.Sleep(2 * time.Minute)
		s.want(t, "when the document has heard of it")
		if m.Generation() != generation {
			t.Error("the generation has moved without a change")
		}
		s.close(t)
	})
}

// A server that contradicts itself gets a limited number of requests, and the lookup
// returns an answer all the same.
func TestContradictions(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, version := range []string{"v2", "v3", "v4", "v5"} {
			server.PutVersion(fooKind.Group, fakeVersion(version, "In"+version))
		}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
		server.SetLag(fakeapi.PartLists, fakeapi.Forever)
		server.Remove(fooKind.Group) // all its versions, whatever the documents say
		absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(fooKind.Group) }} {
			for _, versions := range [][]string{nil, {"v1"}, {"v9", "v5"}} {
				reset()
				server.TakeRequests()
				if _, err := m.RESTMapping(absent, versions...); !meta.IsNoMatchError(err) {
					t.Errorf("versions %q: %v", versions, err)
				}
				if requests := server.TakeRequests(); len(requests) > 12 {
					t.Errorf("versions %q: %d requests: %v", versions, len(requests), requests)
				}
			}
		}
		wantServed(t, m, otherKind)
	})
}

// The group of a lookup by resource may be the beginning of a name. A group that is
// new is found by it, although another one has just that name.
func TestNewGroupByTheBeginningOfItsName(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		server.PutVersion("apps", fakeVersion("v1", "Deployment"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.PutVersion("apps.example.com", fakeVersion("v1", "New"))
		for n := range 3 {
			kind, err := m.KindFor(schema.GroupVersionResource{Group: "apps", Resource: "news"})
			if err != nil || kind != (schema.GroupVersionKind{Group: "apps.example.com", Version: "v1", Kind: "New"}) {
				t.Errorf("try %d: %v, %v", n, kind, err)
			}
		}
		server.PutVersion("apps.example.com", fakeVersion("v2", "Newer"))
		kind, err := m.KindFor(schema.GroupVersionResource{Group: "app", Resource: "newers"})
		if err != nil || kind != (schema.GroupVersionKind{Group: "apps.example.com", Version: "v2", Kind: "Newer"}) {
			t.Errorf("a new version: %v, %v", kind, err)
		}
	})
}

// If a document drops known groups, live reads of these groups decide whether they have
// gone. If such a read fails, the group stays, but after a reset it is an error (R4).

// dropFromDocuments makes the documents of a server lack the group, which is served.
func dropFromDocuments(server *fakeapi.Server, group string, versions ...fakeapi.Version) {
	server.Remove(group)
	server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
	server.Put(fakeGroup(group, versions...))
}

func TestDocumentDropsAGroup(t *testing.T) {
	const served, gone, fails = "is served", "is gone", "fails"
	foo := fakeVersion("v1", "Foo", "Bar")
	for _, test := range []struct {
		name string
		drop func(*fakeapi.Server)
		then string
	}{
		{"which is served", func(s *fakeapi.Server) { dropFromDocuments(s, fooKind.Group, foo) }, served},
		{"which is not served", func(s *fakeapi.Server) { s.Remove(fooKind.Group) }, gone},
		{"which is 503", func(s *fakeapi.Server) {
			s.Remove(fooKind.Group)
			s.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Status(503, 5))
		}, fails},
		{"which hangs", func(s *fakeapi.Server) {
			s.Remove(fooKind.Group)
			s.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		}, fails},
		{"which a gateway has lost", func(s *fakeapi.Server) {
			s.Remove(fooKind.Group)
			s.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Empty(404))
		}, fails},
		{"of which only the versions answer", func(s *fakeapi.Server) {
			dropFromDocuments(s, fooKind.Group, foo)
			s.SetFault(fakeapi.At("/apis/example.com"), fakeapi.Status(503, 5))
		}, served},
	} {
		for when, meanwhile := range map[string]func(*testing.T, *apiutil.DynamicRESTMapper){
			"a miss elsewhere": func(t *testing.T, m *apiutil.DynamicRESTMapper) {
				wantAbsent(t, m, newKind)
				_, _ = m.RESTMapping(newKind.GroupKind())
			},
			"Reset":          func(_ *testing.T, m *apiutil.DynamicRESTMapper) { m.Reset() },
			"Reset, refresh": func(t *testing.T, m *apiutil.DynamicRESTMapper) { m.Reset(); time.Sleep(2 * time.Minute) },
			"a refresh":      func(*testing.T, *apiutil.DynamicRESTMapper) { time.Sleep(2 * time.Minute) },
		} {
			t.Run(test.name+"/"+when, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					server := newServer(fakeapi.Aggregated())
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 10 * time.Second})
					readAll(t, m)
					stop := startMapper(t, m)
					synctest.Wait()
					s := subscribe(m)
					s.take(t)
					test.drop(server)
					meanwhile(t, m)
					switch {
					case test.then == gone:
						time.Sleep(time.Minute) // a miss elsewhere does not depend on the group
						wantAbsent(t, m, fooKind, barKind)
						if _, err := m.RESTMapping(fooKind.GroupKind()); !meta.IsNoMatchError(err) {
							t.Errorf("without a version: %v", err)
						}
						s.want(t, "in the end",
							"Removed example.com/v1 Foo -> foos, namespace", "Removed example.com/v1 Bar -> bars, namespace")
					case test.then == fails && strings.HasPrefix(when, "Reset"):
						for _, form := range append(lookupForms(fooKind), lookupForms(barKind)...) {
							form.wantOutage(t, m, "after a reset")
						}
						s.want(t, "after a reset")
					default:
						wantServed(t, m, fooKind, barKind)
						for _, form := range lookupForms(fooKind) {
							form.wantAnswer(t, m, "in the end")
						}
						s.want(t, "in the end")
					}
					wantServed(t, m, otherKind)
					server.ClearFaults()
					s.close(t)
					stop()
				})
			})
		}
	}
}

// F9: nobody waits for a group that the document has dropped and that hangs.
func TestDroppedGroupThatHangs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLatency(latency)
		server.Remove(fooKind.Group)
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		for n := range 3 {
			m.Reset()
			start := time.Now()
			wantServed(t, m, otherKind, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
			if _, err := m.RESTMapping(newKind.GroupKind()); !meta.IsNoMatchError(err) {
				t.Error(err)
			}
			if took := time.Since(start); took > 5*latency {
				t.Errorf("try %d took %v", n, took)
			}
		}
		server.ClearFaults()
		time.Sleep(time.Minute)
	})
}

// The same if some of the groups hang. Each refresh ends with the first that hangs, and
// the next one begins with those that were not asked. Those that hang stay until they
// answer.
func TestDocumentDropsManyGroupsOfWhichSomeHang(t *testing.T) {
	const groups, interval = 30, 10 * time.Second
	const timeout = 10 * time.Second
	for _, hanging := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, RequestTimeout: timeout})
				readAll(t, m)
				stop := startMapper(t, m)
				synctest.Wait()
				for n := 2; n <= groups; n++ {
					name := fmt.Sprintf("g%04d.example.com", n)
					if server.Remove(name); n%2 == 0 && n <= 2*hanging {
						server.SetFault(fakeapi.InGroup(name), fakeapi.Timeout())
					}
				}
				time.Sleep(time.Duration(hanging+1) * (interval + timeout + time.Second)) // a 404 is doubted for a second
				if got := m.Status().Groups; got != 2+hanging {
					t.Errorf("%d groups are known after %d refreshes, want %d", got, hanging+1, 2+hanging)
				}
				server.ClearFaults()
				time.Sleep(2 * time.Minute)
				if got := m.Status().Groups; got != 2 {
					t.Errorf("%d groups are known in the end, want 2", got)
				}
				stop()
			})
		})
	}
}

// If a document drops a version or a kind of a known group, a lookup believes that only
// after a live read.
func TestDocumentDropsAKind(t *testing.T) {
	for what, dropped := range map[string][]fakeapi.Version{
		"kind": {fakeVersion("v1", "Bar")}, "version": {fakeVersion("v2", "Bar")},
	} {
		for when, meanwhile := range map[string]func(*testing.T, *apiutil.DynamicRESTMapper){
			"misses": missElsewhere, "Reset": meanwhiles["Reset"], "ResetGroup": meanwhiles["ResetGroup"],
		} {
			for _, form := range lookupForms(fooKind) {
				if form.group == "" {
					continue // a lookup of any group believes the document
				}
				t.Run(what+"/"+when+"/"+form.name, func(t *testing.T) {
					inBubble(t, func(t *testing.T) {
						server := newServer(fakeapi.Aggregated())
						m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
						readAll(t, m)
						server.Put(fakeGroup(fooKind.Group, dropped...))
						server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
						server.Put(fakeGroup(fooKind.Group, fakeVersion("v1", "Foo", "Bar")))
						meanwhile(t, m)
						form.wantAnswer(t, m, "served, whatever the document says")
					})
				})
			}
		}
	}
}
