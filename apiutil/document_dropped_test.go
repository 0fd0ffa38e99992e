// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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

// If several groups go together and one hangs, the others are forgotten by the next
// refresh: it reads those first that were tried least recently.
func TestDroppedGroupBesideOneThatHangs(t *testing.T) {
	const interval, timeout = 10 * time.Second, 5 * time.Second
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, RequestTimeout: timeout})
		readAll(t, m)
		stop := startMapper(t, m)
		synctest.Wait()
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		server.SetGroups(fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup("apps", fakeVersion("v1", "Deployment")))
		time.Sleep(2*interval + timeout + 2*time.Second) // a 404 is doubted for a second
		if got := m.Status().Groups; got != 3 {
			t.Errorf("%d groups are known after two refreshes, want 3", got)
		}
		wantAbsent(t, m, otherKind)
		stop()
		server.ClearFaults()
	})
}

// If many groups go at once, each is asked once whether it has gone.
func TestDocumentDropsManyGroups(t *testing.T) {
	const groups = 100
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 10 * time.Second})
		readAll(t, m)
		stop := startMapper(t, m)
		synctest.Wait()
		for n := 2; n <= groups; n++ {
			server.Remove(fmt.Sprintf("g%04d.example.com", n))
		}
		server.TakeRequests()
		time.Sleep(11 * time.Second)
		live := 0
		for _, r := range server.TakeRequests() {
			if r.Path != "/api" && r.Path != "/apis" {
				live++
			}
		}
		if live != groups-1 {
			t.Errorf("%d live requests for %d groups", live, groups-1)
		}
		if got := m.Status().Groups; got != 2 {
			t.Errorf("%d groups are known after a refresh, want 2", got)
		}
		stop()
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

// A server that starts drops groups from its document for a moment: one group that answers
// late, and does not say that it is gone, keeps all that come after it.
func TestDocumentDropsManyGroupsOfWhichOneIsLate(t *testing.T) {
	const groups, interval = 30, 10 * time.Second
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval})
		readAll(t, m)
		stop := startMapper(t, m)
		synctest.Wait()
		for n := 2; n <= groups; n++ {
			server.Remove(fmt.Sprintf("g%04d.example.com", n))
		}
		server.SetFault(fakeapi.InGroup("g0004.example.com"), fakeapi.Func("late", func(*http.Request) (*http.Response, error) {
			time.Sleep(2 * time.Second)
			return &http.Response{StatusCode: 503, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Header: http.Header{}, Body: http.NoBody}, nil
		}))
		time.Sleep(interval + 7*time.Second)
		if got := m.Status().Groups; got != 1+groups-2 {
			t.Errorf("%d groups are known after a refresh, want the core group and %d of %d", got, groups-2, groups)
		}
		stop()
	})
}

// One of two groups has gone, the other one has not.
func TestDocumentDropsTwoGroups(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		server.PutVersion("apps", fakeVersion("v1", "Deployment"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.Remove(otherKind.Group)
		dropFromDocuments(server, fooKind.Group, fakeVersion("v1", "Foo", "Bar"))
		for range 3 {
			m.Reset()
			_, _ = m.RESTMapping(newKind.GroupKind())
			if _, err := m.RESTMapping(fooKind.GroupKind()); err != nil {
				t.Error(err)
			}
			wantServed(t, m, fooKind, barKind)
			wantAbsent(t, m, otherKind)
		}
	})
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
