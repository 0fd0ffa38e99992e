// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// TestClientFollows: a read finds what has switched at the first try, and so does a write if only the plural is
// another. Everything else has controller-runtime's error and is sent once. The next request is sent where a new
// client would send it, except for a write for a namespace of a kind that no longer is in any. No list of a namespace
// has what is in another.
func TestClientFollows(t *testing.T) {
	for name, test := range map[string]struct {
		was, is, plural string
		namespace, name string
		heals           string // the requests that do: "all", "reads" or ""
	}{
		"to the cluster":      {inNamespaces, ofCluster, "configmaps", "ns", "n", "reads"},
		"without a namespace": {inNamespaces, ofCluster, "configmaps", "", "n", "reads"},
		"to a namespace":      {ofCluster, inNamespaces, "configmaps", "ns", "n", "reads"},
		"another plural":      {inNamespaces, inNamespaces, "gizmos", "ns", "n", "all"},
		"another, and scope":  {inNamespaces, ofCluster, "gizmos", "ns", "n", "reads"},
		"and without one":     {ofCluster, inNamespaces, "configmaps", "", "n", ""},
		"gone":                {inNamespaces, "", "", "ns", "n", ""},
		"an absent object":    {inNamespaces, inNamespaces, "configmaps", "ns", "absent", ""},
	} {
		for _, representation := range representations {
			for what, send := range (caller{representation, configMap}).requests() {
				s := newChangingServer(t, test.was)
				ours := s.client(t, nil)
				first := meta.NewDefaultRESTMapper(nil) // as stock's, which keeps the first mapping
				first.Add(configMap, map[string]meta.RESTScope{inNamespaces: meta.RESTScopeNamespace,
					ofCluster: meta.RESTScopeRoot}[test.was])
				stock := s.client(t, first)
				was := map[bool]string{true: "ns"}[test.was == inNamespaces]
				must(t, errors.Join(send(ours, was, "n"), send(stock, was, "n")))
				s.change(func() { s.scope, s.plural = test.is, test.plural })
				_, _ = s.take()
				wantErr := send(stock, test.namespace, test.name)
				wantSent, _ := s.take()
				err := send(ours, test.namespace, test.name)
				sent, _ := s.take()
				if test.is == inNamespaces && test.namespace == "" {
					// a client of metadata sends what others refuse to send, and a list has all
					sent = slices.Compact(sent)
				}
				if test.heals == "all" || test.heals == "reads" && isRead(what) {
					wantErr, wantSent = nil, sent[:min(2, len(sent))]
				}
				if fmt.Sprint(err) != fmt.Sprint(wantErr) || !slices.Equal(sent, wantSent) {
					t.Errorf("%s: %s %s: %v after %q; want %v after %q", name, representation, what, err, sent,
						wantErr, wantSent)
				}
				heals := test.is != "" && (test.namespace != "") == (test.is == inNamespaces) ||
					test.is == ofCluster && isRead(what) || what == "List" && test.is != ""
				if err := send(ours, test.namespace, test.name); test.name == "n" && (err == nil) != heals {
					t.Errorf("%s: %s %s: the next one is answered: %t, want %t: %v", name, representation, what,
						err == nil, heals, err)
				}
			}
		}
	}
}

// A write for a namespace never reaches the cluster-scoped objects of a kind that was namespaced
// for anybody with the same mapper: not even the first write of a client, whether the mapper
// has noticed the change or not. A write for no namespace is sent to the path of the kind.
func TestFirstWriteStaysInItsNamespace(t *testing.T) {
	requests := caller{"unstructured", configMap}.requests()
	for how, use := range map[string]func(*testing.T, *changingServer, client.Client) error{
		"request": func(_ *testing.T, _ *changingServer, c client.Client) error {
			return requests["Get"](c, "ns",
				"n")
		},
		"lookup": func(_ *testing.T, _ *changingServer, c client.Client) error {
			_, err := c.IsObjectNamespaced(&corev1.ConfigMap{})
			return err
		},
		"informer": func(t *testing.T, s *changingServer, c client.Client) error {
			cached, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper()})
			_, err := cached.GetInformer(t.Context(), &corev1.ConfigMap{})
			return err
		},
	} {
		for what, write := range requests {
			if isRead(what) || strings.HasPrefix(what, "Namespaced.") {
				continue
			}
			for _, noticed := range []bool{true, false} {
				bubble(t, fmt.Sprintf("%s after a %s, noticed: %t", what, how, noticed), func(t *testing.T) {
					s := newChangingServer(t, inNamespaces)
					first := s.sharing(t)
					must(t, use(t, s, first))
					s.change(func() { s.scope = ofCluster })
					if noticed {
						refresh(t, first)
					}
					_ = s.writesElsewhere()
					for name, c := range map[string]client.Client{"the same": first,
						"a wrapped": s.client(t, unwrappingMapper{first.RESTMapper()}), "another": s.sharing(t)} {
						if err, sent := write(c, "ns", "n"), s.writesElsewhere(); !apierrors.IsNotFound(err) || len(sent) > 0 ||
							noticed && !strings.Contains(err.Error(), "was namespaced before") {
							t.Errorf("%s client, for a namespace: got %v after %q, want a 404, which says "+
								"why if the mapper has noticed, and nothing sent", name, err, sent)
						}
						if err, sent := write(c, "", "n"), s.writesElsewhere(); err != nil || len(sent) != 1 {
							t.Errorf("%s client, for none: got %v after %q, want one write", name, err, sent)
						}
					}
				})
			}
		}
	}
}

// writesElsewhere returns the writes since the last call that are not of the namespace "ns".
func (s *changingServer) writesElsewhere() []string {
	sent, _ := s.take()
	return slices.DeleteFunc(sent, func(path string) bool {
		return strings.HasPrefix(path, "GET ") || strings.Contains(path, "/namespaces/ns/")
	})
}

// outdatedMapper is a mapper that says of some of its lookups, which it counts from 1, that ConfigMaps are
// cluster-scoped.
type outdatedMapper struct {
	unwrappingMapper
	lookups *atomic.Int32
	cluster func(lookup int32) bool
}

func (m outdatedMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.unwrappingMapper.RESTMapping(gk, versions...)
	if err == nil && m.cluster(m.lookups.Add(1)) {
		mapping.Scope = meta.RESTScopeRoot
	}
	return mapping, err
}

// A write is sent with the scope for which it was allowed, whenever the mapper learns of another one: so is the
// second try of a write whose plural has changed.
func TestWriteWhileTheScopeChanges(t *testing.T) {
	for when, cluster := range map[string]func(first, lookup int32) bool{
		"every other lookup":   func(_, lookup int32) bool { return lookup%2 == 0 },
		"the first lookup on":  func(first, lookup int32) bool { return lookup >= first },
		"the second lookup on": func(first, lookup int32) bool { return lookup >= first+1 },
		"the third lookup on":  func(first, lookup int32) bool { return lookup >= first+2 },
		"the fourth lookup on": func(first, lookup int32) bool { return lookup >= first+3 },
	} {
		for _, representation := range representations {
			for what, write := range (caller{representation, configMap}).requests() {
				s, first := newChangingServer(t, inNamespaces), int32(1<<30)
				m := outdatedMapper{unwrappingMapper{s.mapper(t, apiutil.DynamicRESTMapperOptions{})},
					&atomic.Int32{}, func(n int32) bool { return cluster(first, n) }}
				c := s.client(t, m)
				_ = write(c, "ns", "n")
				s.change(func() { s.plural = "gizmos" })
				first = m.lookups.Load() + 1
				for range 3 {
					_ = write(c, "ns", "n")
				}
				if sent := s.writesElsewhere(); len(sent) > 0 {
					t.Errorf("%s %s while the mapper says cluster-scoped from %s: sent %q", representation, what, when,
						sent)
				}
			}
		}
	}
}

// A list that is sent again has nothing of the first answer, which had objects of other namespaces. If it cannot be sent again,
// it is empty.
func TestNothingIsLeftOfAListThatContradicts(t *testing.T) {
	const foreign = `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"9","continue":"more"},"items":[
		{"kind":"ConfigMap","apiVersion":"v1","metadata":{"namespace":"other","name":"a","labels":{"of":"other"}},"data":{"k":"v"}}]}`
	for _, discovery := range []string{"right", "behind"} {
		for _, representation := range representations {
			bubble(t, discovery+", "+representation, func(t *testing.T) {
				s := newChangingServer(t, ofCluster)
				c := s.client(t, nil)
				list := caller{representation, configMap}.list()
				must(t, c.List(t.Context(), list))
				if discovery == "behind" {
					s.SetFault(fakeapi.Discovery(), fakeapi.Status(503, 0))
				}
				s.change(func() { s.scope = inNamespaces })
				s.SetFault(fakeapi.Objects("", "list"), fakeapi.Times(1, fakeapi.Func("foreign", func(req *http.Request) (*http.Response, error) {
					body := foreign
					if representation == "metadata" {
						body = strings.ReplaceAll(body, "ConfigMap", "PartialObjectMetadata")
						body = strings.ReplaceAll(body, `"apiVersion":"v1"`, `"apiVersion":"meta.k8s.io/v1"`)
					}
					return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
						Body: io.NopCloser(strings.NewReader(body)), Request: req}, nil
				})))

				list = caller{representation, configMap}.list()
				err := c.List(t.Context(), list, client.InNamespace("ns"))
				if (err == nil) != (discovery == "right") {
					t.Errorf("got %v", err)
				}
				if list.GetContinue() != "" {
					t.Errorf("the list goes on with %q", list.GetContinue())
				}
				must(t, meta.EachListItem(list, func(o runtime.Object) error {
					object, err := meta.Accessor(o)
					must(t, err)
					if object.GetNamespace() != "ns" || len(object.GetLabels()) > 0 {
						t.Errorf("the list has %s/%s with labels %v", object.GetNamespace(), object.GetName(), object.GetLabels())
					}
					return nil
				}))
				if n := meta.LenList(list); err == nil && n != 1 {
					t.Errorf("the list has %d objects, want one", n)
				}
			})
		}
	}
}

// What is listed or watched for a namespace, live or from a cache, is never what is in others, also while discovery
// is behind, or cannot be read: that is an error then.
func TestReadsOfANamespace(t *testing.T) {
	for why, fault := range map[string]fakeapi.Fault{
		"discovery says that the kind is cluster-scoped": fakeapi.Func("behind", func(req *http.Request) (*http.Response, error) {
			return newChangingServer(t, ofCluster).Client().Transport.RoundTrip(req)
		}),
		"503": fakeapi.Status(503, 0),
	} {
		for _, representation := range representations {
			bubble(t, why+", "+representation, func(t *testing.T) {
				s, list := newChangingServer(t, ofCluster), caller{representation, configMap}.list()
				c := s.client(t, nil)
				one := newNamespaced(c, "ns")
				cached, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper(),
					DefaultNamespaces: map[string]cache.Config{"ns": {}}})
				must(t, c.List(t.Context(), list))
				heal := s.SetFault(fakeapi.Discovery(), fault)
				s.change(func() { s.scope = inNamespaces })
				for what, err := range map[string]error{"by option": c.List(t.Context(), list,
					client.InNamespace("ns")), "by client": one.List(t.Context(), list)} {
					if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) ||
						!strings.Contains(err.Error(), why) {
						t.Errorf("the list %s: got %v, want an error that says why it cannot be told: %s", what, err,
							why)
					}
				}
				watching, err := c.Watch(t.Context(), list, client.InNamespace("ns"))
				must(t, err)
				must(t, s.Tell("BOOKMARK", "configmaps", fakeapi.Object{})) // which is in no namespace
				if event := <-watching.ResultChan(); event.Type != watch.Bookmark {
					t.Errorf("of a bookmark the watch tells %v", event)
				}
				for _, namespace := range []string{"ns", "other"} {
					want := map[string]watch.EventType{"ns": watch.Added, "other": watch.Error}[namespace]
					must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Namespace: namespace, Name: "n"}))
					if event := <-watching.ResultChan(); event.Type != want {
						t.Errorf("of an object in namespace %q the watch tells %v, want: %s", namespace, event, want)
					}
				}
				if event, more := <-watching.ResultChan(); more {
					t.Errorf("the watch goes on with %v", event)
				}
				short, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if err := cached.List(short, list); err == nil && meta.LenList(list) > 0 {
					t.Errorf("the cache of a namespace has %d objects, want none", meta.LenList(list))
				}
				must(t, c.List(t.Context(), list)) // at either path it is the same
				heal()
				eventually(t, "the list of the namespace", func() bool {
					return one.List(t.Context(), list) == nil && meta.LenList(list) == 1
				})
			})
		}
	}
}

// A watch of all namespaces has the objects of all, and one that is refused is an error.
func TestWatchOfAllNamespaces(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c := s.client(t, nil)
		watching, err := c.Watch(t.Context(), &corev1.ConfigMapList{})
		must(t, err)
		for _, namespace := range []string{"ns", "other"} {
			must(t, s.Tell("ADDED", "configmaps", fakeapi.Object{Namespace: namespace, Name: "n"}))
			if event := <-watching.ResultChan(); event.Type != watch.Added {
				t.Errorf("of an object in namespace %q the watch tells %v", namespace, event)
			}
		}
		watching.Stop()
		s.SetFault(fakeapi.Objects("", "watch"), fakeapi.Status(403, 0))
		for _, namespace := range []string{"", "ns"} {
			_, err := c.Watch(t.Context(), &corev1.ConfigMapList{}, client.InNamespace(namespace))
			if !apierrors.IsForbidden(err) {
				t.Errorf("namespace %q: %v, want the server's 403", namespace, err)
			}
		}
	})
}

// A watch for a namespace passes on the error with which the server ends it.
func TestErrorThatEndsAWatch(t *testing.T) {
	const expired = `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Expired","code":410}}`
	for _, representation := range representations {
		bubble(t, representation, func(t *testing.T) {
			s := newChangingServer(t, inNamespaces)
			s.SetFault(fakeapi.Objects("ns", "watch"), fakeapi.Func("expired", func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}},
					Body: io.NopCloser(strings.NewReader(expired)), Request: req}, nil
			}))
			watching, err := s.client(t, nil).Watch(t.Context(), caller{representation, configMap}.list(),
				client.InNamespace("ns"))
			must(t, err)
			event := <-watching.ResultChan()
			if event.Type != watch.Error || !apierrors.IsResourceExpired(apierrors.FromObject(event.Object)) {
				t.Errorf("the watch tells %v, want the server's error", event)
			}
			watching.Stop()
		})
	}
}

// The objects that a list has from before do not affect a watch.
func TestWatchIntoAnOldList(t *testing.T) {
	for _, representation := range representations {
		s, list := newChangingServer(t, inNamespaces), caller{representation, configMap}.list()
		c := s.client(t, nil)
		must(t, c.List(t.Context(), list))
		s.change(func() { s.scope = ofCluster })
		_, _ = s.take()
		watching, err := c.Watch(t.Context(), list)
		must(t, err)
		watching.Stop()
		if sent, _ := s.take(); len(sent) != 1 {
			t.Errorf("%s: sent %q, want one watch", representation, sent)
		}
	}
}

// For a kind that was removed a client gets the server's 404, or NoMatch if it has never seen the kind, although
// another client has. However often it is asked for, also by what is made later, that costs few reads: four to
// confirm, in four seconds, and one lookup.
func TestKindThatIsRemoved(t *testing.T) {
	bubble(t, "one mapper", func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c := s.client(t, nil)
		call := func(gone bool) {
			for _, representation := range representations {
				with, another := caller{representation, configMap}, s.client(t, c.RESTMapper())
				for _, err := range []error{
					with.requests()["Get"](another, "ns", "n"), with.requests()["Namespaced.Delete"](c, "ns", "n"),
					c.List(t.Context(), with.list()), newNamespaced(another, "ns").List(t.Context(), with.list()),
				} {
					if apierrors.IsNotFound(err) != gone || !gone && err != nil {
						t.Errorf("gone: %t: %s: %v", gone, representation, err)
					}
				}
			}
		}
		call(false)
		s.change(func() { s.scope = "" })
		_, _ = s.take()
		for range 10 {
			call(true)
		}
		if sent, reads := s.take(); reads > 6 || len(sent) < 120 { // the lookup is of two at a legacy server
			t.Errorf("for 120 requests %d reads of the served API, want at most 6, and %d were sent, want each",
				reads, len(sent))
		}
	})
	bubble(t, "one fleet", func(t *testing.T) {
		s, get := newChangingServer(t, inNamespaces), caller{"typed", configMap}.requests()["Get"]
		old := s.sharing(t)
		must(t, get(old, "ns", "n"))
		s.change(func() { s.scope = "" })
		for range 2 {
			c := s.sharing(t)
			for range 2 {
				if err := get(c, "ns", "n"); !meta.IsNoMatchError(err) {
					t.Errorf("a client that never had it got %v, want NoMatch", err)
				}
			}
		}
		if err := get(old, "ns", "n"); !apierrors.IsNotFound(err) {
			t.Errorf("the one that had it got %v, want the server's 404", err)
		}
	})
}

// After a reset a kind that was removed is looked up once, also while that cannot be read, and found where it is,
// although its old path says only that there is no such object. So is one that a read from before the reset does not
// find.
func TestResetOfAKindThatWasRemoved(t *testing.T) {
	requests := caller{"typed", configMap}.requests()
	get := requests["Get"]
	gone := func(t *testing.T) (*changingServer, client.Client) {
		s := newChangingServer(t, inNamespaces)
		c := s.client(t, nil)
		must(t, get(c, "ns", "n"))
		s.change(func() { s.scope = "" })
		for range 5 { // until the mapper may not confirm it once more
			_ = get(c, "ns", "n")
		}
		return s, c
	}
	noSuchObject := func(s *changingServer) { s.SetFault(fakeapi.Objects("ns"), fakeapi.LostService("n")) }
	bubble(t, "another plural", func(t *testing.T) {
		s, c := gone(t)
		s.change(func() { s.scope, s.plural = inNamespaces, "gizmos" })
		meta.MaybeResetRESTMapper(c.RESTMapper())
		must(t, errors.Join(requests["Patch"](c, "ns", "n"), get(c, "ns", "n")))
	})
	bubble(t, "an outage", func(t *testing.T) {
		s, c := gone(t)
		for _, discovery := range []fakeapi.Fault{fakeapi.Late(0), fakeapi.Status(503, 0)} {
			s.SetFault(fakeapi.Discovery(), discovery)
			meta.MaybeResetRESTMapper(c.RESTMapper())
			_, _ = s.take()
			for range 20 {
				_ = get(c, "ns", "n")
			}
			if _, reads := s.take(); reads == 0 || reads > 5 {
				t.Errorf("discovery: %s: %d reads of the served API for 20 requests, want 1 to 5", discovery, reads)
			}
		}
		s.ClearFaults()
		noSuchObject(s)
		s.change(func() { s.scope = ofCluster })
		eventually(t, "the kind is found", func() bool { return get(c, "ns", "n") == nil })
	})
	bubble(t, "an older read", func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		c := s.client(t, nil)
		must(t, get(c, "ns", "n"))
		s.change(func() { s.scope = "" })
		s.SetFault(fakeapi.Discovery(), fakeapi.Times(1, fakeapi.Late(time.Second)))
		ended := make(chan error)
		go func() { ended <- get(c, "ns", "n") }()
		synctest.Wait()
		s.change(func() { s.scope = ofCluster })
		noSuchObject(s)
		meta.MaybeResetRESTMapper(c.RESTMapper())
		t.Logf("the read that began before the change: %v", <-ended) // either answer is right
		must(t, get(c, "ns", "n"))
	})
}

// If a kind was removed, and another kind has its resource now, no write reaches that other kind, also while what is
// served cannot be read, and no Get returns anything of it. Refused requests cost few reads. When the kind is back,
// it is written to, whether anything else tells the mapper or not.
func TestKindThatIsReplaced(t *testing.T) {
	for _, representation := range representations {
		for what, send := range (caller{representation, configMap}).requests() {
			bubble(t, representation+" "+what, func(t *testing.T) {
				s := newChangingServer(t, inNamespaces)
				c := s.client(t, nil)
				must(t, send(c, "ns", "n"))
				s.change(func() { s.kind = "Another" })
				refresh(t, c)
				for _, discovery := range []fakeapi.Fault{fakeapi.Status(503, 0), fakeapi.Late(0)} {
					s.SetFault(fakeapi.Discovery(), discovery)
					_, _ = s.take()
					var err error
					for range 100 {
						err = send(c, "ns", "n")
					}
					if sent, reads := s.take(); !isRead(what) && len(sent) > 0 || reads > 10 || err == nil &&
						what != "List" {
						t.Errorf(
							"discovery: %s: after 100 requests: %v, %d reads of the served API (want at most 10), sent %q",
							discovery, err, reads, sent)
					}
				}
				s.ClearFaults()
				s.change(func() { s.kind = configMap.Kind })
				eventually(t, "the kind is back", func() bool { return send(c, "ns", "n") == nil })
			})
		}
	}
}

// An error that is not about the path is returned at once, also while discovery hangs. What a server answers for a
// moment that lists a kind already, and begins to serve it, is passed on, too, and costs few reads of the served API.
// Then all is well.
func TestErrorsArePassedOn(t *testing.T) {
	for what, faults := range map[string][]fakeapi.Fault{
		"Get": {fakeapi.LostService("n"), fakeapi.StatusText(404), fakeapi.Status(503, 0), fakeapi.Status(409, 0),
			fakeapi.Status(403, 0)},
		"Create": {fakeapi.NotFound(), fakeapi.Status(429, 0), fakeapi.Status(503, 0), fakeapi.Status(409, 0)},
	} {
		for _, fault := range faults {
			bubble(t, what+" "+fault.String(), func(t *testing.T) {
				s, send := newChangingServer(t, inNamespaces), caller{"unstructured", configMap}.requests()[what]
				c, begins := s.client(t, nil), fault.String() == fakeapi.NotFound().String()
				must(t, send(c, "ns", "n"))
				if !begins {
					s.SetFault(fakeapi.Discovery(), fakeapi.Timeout())
				}
				heal := s.SetFault(fakeapi.Objects(""), fault)
				began, _ := time.Now(), s.TakeRequests()
				for range 20 {
					if err := send(c, "ns", "n"); err == nil || begins && !apierrors.IsNotFound(err) {
						t.Errorf("got %v, want the server's error", err)
					}
				}
				if took := time.Since(began); took > 0 {
					t.Errorf("20 errors took %v: they waited for discovery, which hangs", took)
				}
				heal()
				must(t, send(c, "ns", "n"))
				if _, reads := s.take(); reads > 5 { // four confirm
					t.Errorf("%d reads of the served API for 21 requests, want at most 5", reads)
				}
			})
		}
	}
}

// A kind that the options exclude from the cache is read from the server, and followed, whatever the caller does with
// the objects of the options afterwards. Everything else is read from the cache.
func TestKindThatIsNotReadFromTheCache(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s := newChangingServer(t, inNamespaces)
		cached, m := s.caching(t, cache.Options{ReaderFailOnMissingInformer: true})
		_, err := cached.GetInformer(t.Context(), &corev1.Secret{})
		must(t, err)
		excluded := caller{"metadata", configMap}.object("", "")
		options := client.Options{HTTPClient: s.Client(), Mapper: m, Cache: &client.CacheOptions{
			Reader: cached, DisableFor: []client.Object{excluded},
		}}
		c, err := newClient(s.Config(), options)
		must(t, err)
		excluded.GetObjectKind().SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Secret"))
		for _, step := range []struct{ scope, namespace, path string }{
			{inNamespaces, "ns", "/api/v1/namespaces/ns/configmaps/n"},
			{ofCluster, "", "/api/v1/configmaps/n"},
			{inNamespaces, "ns", "/api/v1/namespaces/ns/configmaps/n"},
		} {
			s.change(func() { s.scope = step.scope }) // the mapper has not noticed
			_, _ = s.take()
			must(t, c.Get(t.Context(), client.ObjectKey{Namespace: step.namespace, Name: "n"}, &corev1.ConfigMap{}))
			if sent, _ := s.take(); len(sent) == 0 || sent[len(sent)-1] != "GET "+step.path {
				t.Errorf("%s: sent %q, want a last request for %s", step.scope, sent, step.path)
			}
			must(t, errors.Join(c.List(t.Context(), &corev1.ConfigMapList{}), c.List(t.Context(), &corev1.SecretList{})))
			if sent, _ := s.take(); !slices.Equal(sent, []string{"GET /api/v1/configmaps"}) {
				t.Errorf("%s: sent %q for two lists, want that of the excluded kind", step.scope, sent)
			}
		}
		options.Cache.DisableFor = []client.Object{&unstructured.Unstructured{}}
		_, err = newClient(s.Config(), options)
		if _, want := client.New(s.Config(), options); err == nil || want == nil || err.Error() != want.Error() {
			t.Errorf("an object without a kind is excluded: %v, want controller-runtime's error: %v", err, want)
		}
	})
}

// A client keeps its options, and those of clients that wrap it, also after a switch.
func TestOptionsOfTheClient(t *testing.T) {
	for name, make := range map[string]func(*rest.Config, client.Options) (client.Client, error){
		"client": func(config *rest.Config, o client.Options) (client.Client,
			error) {
			return newClient(config, o)
		},
		"with watch": func(config *rest.Config, o client.Options) (client.Client,
			error) {
			return newWithWatch(config, o)
		},
	} {
		s, dry := newChangingServer(t, inNamespaces), true
		var queries []string
		seeing := &http.Client{Transport: fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
			queries = append(queries, req.URL.RawQuery)
			return s.Server
		})}
		config, m, _ := s.Config(), s.mapper(t, apiutil.DynamicRESTMapperOptions{}), logged.take()
		made, err := make(config, client.Options{HTTPClient: seeing, Mapper: m, DryRun: &dry})
		must(t, err)
		config.Host, dry = "http://elsewhere.invalid", false // for the caller's next client
		// older releases have no such options
		c := client.WithFieldValidation(client.WithFieldOwner(made, "me"), "Strict")
		for step, scope := range []string{inNamespaces, ofCluster, inNamespaces} {
			s.changeScope(t, m, scope)
			queries = nil
			for range 2 {
				must(t, caller{"unstructured", configMap}.requests()["Update"](c,
					map[string]string{inNamespaces: "ns"}[scope], "n"))
			}
			const want = "dryRun=All&fieldManager=me&fieldValidation=Strict"
			if !slices.Equal(queries, []string{want, want}) {
				t.Errorf("%s, %s: sent %q, want twice %q", name, scope, queries, want)
			}
			if lines := logged.take("The client follows"); len(lines) != min(step, 1) {
				t.Errorf("%s, %s: logged %q for two requests, want one line after a move", name, scope, lines)
			}
		}
	}
}
