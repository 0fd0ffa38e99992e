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

// booting runs test in both modes with a server that knows everything but its custom
// resources. Their own paths answer 503, or truly.
func booting(t *testing.T, opts apiutil.DynamicRESTMapperOptions,
	test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, boot func() (ready func())),
) {
	for name, answering := range map[string]bool{"silent": false, "answering": true} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				server.PutVersion("apps", fakeVersion("v1", "Deployment")) // which a server knows at once
				m := newMapper(t, server, opts)
				readAll(t, m)
				test(t, server, m, func() func() {
					return server.Boot(fakeapi.Booting{Unknown: []string{fooKind.Group, otherKind.Group}, Answering: answering})
				})
			})
		})
	}
}

// A server that starts serves /apis without its custom resources for a moment. That
// is not believed: they have not gone. R4: if such a document was read after a reset, and
// the path of a version does not answer, what the version serves is an error.
func TestLookupsThroughABoot(t *testing.T) {
	for name, reset := range map[string]func(*apiutil.DynamicRESTMapper){
		"no reset":   func(*apiutil.DynamicRESTMapper) {},
		"Reset":      func(m *apiutil.DynamicRESTMapper) { m.Reset() },
		"ResetGroup": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(fooKind.Group) },
	} {
		t.Run(name, func(t *testing.T) {
			booting(t, apiutil.DynamicRESTMapperOptions{}, func(t *testing.T, _ *fakeapi.Server, m *apiutil.DynamicRESTMapper, boot func() func()) {
				silent := strings.Contains(t.Name(), "/silent/")
				ready := boot()
				absent := schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}
				for n := range 10 {
					reset(m)
					if n%2 == 0 { // others' misses read the document
						_, _ = m.RESTMapping(schema.GroupKind{Group: "nowhere.example.com", Kind: "Absent"})
					}
					lost := silent && name == "Reset" // after ResetGroup known kinds go on being served
					for _, form := range lookupForms(fooKind) {
						if when := fmt.Sprintf("while the server boots, round %d", n); lost {
							form.wantOutage(t, m, when)
						} else {
							form.wantAnswer(t, m, when)
						}
					}
					wantServed(t, m, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
					if !lost {
						wantServed(t, m, fooKind, barKind)
					}
					if !lost || name == "ResetGroup" {
						wantServed(t, m, otherKind)
					}
					for _, versions := range [][]string{nil, {"v1"}} {
						if _, err := m.RESTMapping(absent, versions...); err == nil {
							t.Errorf("%v is mapped", absent)
						}
					}
					time.Sleep(time.Second)
				}
				ready()
				reset(m)
				wantServed(t, m, fooKind, barKind, otherKind)
				if _, err := m.RESTMapping(absent); !meta.IsNoMatchError(err) {
					t.Errorf("when the server is ready: %v", err)
				}
			})
		})
	}
}

// A kind of a known group is not absent either if its path does not answer.
func TestMissesThroughABoot(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		server.PutVersion("apps", fakeVersion("v1", "Deployment"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.PutVersion(fooKind.Group, fakeVersion("v1", "Foo", "Bar", "Added"))
		server.PutVersion(newKind.Group, fakeVersion("v1", "New"))
		ready := server.Boot(fakeapi.Booting{Unknown: []string{fooKind.Group, newKind.Group}})
		added := schema.GroupKind{Group: fooKind.Group, Kind: "Added"}
		for _, reset := range []func(){func() {}, m.Reset, func() { m.ResetGroup(fooKind.Group) }} {
			for _, versions := range [][]string{nil, {"v1"}, {"v2", "v1"}} {
				reset()
				if _, err := m.RESTMapping(added, versions...); err == nil || meta.IsNoMatchError(err) {
					t.Errorf("%q: %v; want an error that is not NoMatch", versions, err)
				}
			}
			reset()
			if err := lookUp(m, newKind); err == nil || meta.IsNoMatchError(err) {
				t.Errorf("a version that does not answer: %v", err)
			}
		}
		ready()
		wantServed(t, m, newKind, schema.GroupVersionKind{Group: added.Group, Version: "v1", Kind: added.Kind})
	})
}

// No subscriber receives that a kind has gone because the server starts, and no program
// ends because of it.
func TestSubscribeThroughABoot(t *testing.T) {
	booting(t, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second}, func(
		t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, boot func() func(),
	) {
		stop := startMapper(t, m)
		synctest.Wait()
		s := subscribe(m)
		s.take(t)
		c := runController(m, fooKind, otherKind)
		for n := range 5 {
			down := server.SetFault(fakeapi.All(), fakeapi.Refused())
			time.Sleep(3 * time.Second)
			ready := boot()
			down()
			generation := m.Generation()
			time.Sleep(7 * time.Second)
			s.want(t, fmt.Sprintf("boot %d", n))
			m.Reset()
			_, _ = m.RESTMapping(fooKind.GroupKind())
			time.Sleep(3 * time.Second)
			ready()
			time.Sleep(5 * time.Second)
			s.want(t, fmt.Sprintf("after boot %d", n))
			if m.Generation() != generation {
				t.Errorf("the generation has moved in boot %d", n)
			}
		}
		c.want(t, 1, 0)

		// A kind that does go is reported all the same.
		server.Remove(otherKind.Group)
		time.Sleep(3 * time.Second)
		s.want(t, "a group that goes", "Removed other.example.com/v1 Other -> others, namespace")
		time.Sleep(noticed)
		c.want(t, 1, 1)
		c.wantReturn(t, true, nil)
		s.close(t)
		stop()
	})
}

// restart makes the server go down, then answer 503, and then, for a moment, answer 404
// for custom resources, as a kube-apiserver does when it starts.
func restart(server *fakeapi.Server, moment time.Duration, meanwhile func()) {
	unknown := []string{fooKind.Group, otherKind.Group}
	up := server.SetFault(fakeapi.All(), fakeapi.Refused())
	meanwhile()
	server.Boot(fakeapi.Booting{Unknown: unknown})
	up()
	meanwhile()
	ready := server.Boot(fakeapi.Booting{Unknown: unknown, Absent: true})
	time.AfterFunc(moment, ready)
}

// After an outage a 404 is not believed at once for what was served before it.
func TestLookupsWhileTheServerForgets(t *testing.T) {
	for name, reset := range map[string]func(*apiutil.DynamicRESTMapper){
		"no reset":   func(*apiutil.DynamicRESTMapper) {},
		"Reset":      func(m *apiutil.DynamicRESTMapper) { m.Reset() },
		"ResetGroup": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(fooKind.Group) },
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				server.PutVersion("apps", fakeVersion("v1", "Deployment")) // which a server knows at once
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				for n := range 5 {
					restart(server, 200*time.Millisecond, func() { _ = lookUp(m, lateKind) })
					reset(m)
					// Lookups of something else must not make the mapper forget it
					// either.
					go func() { _ = lookUp(m, lateKind) }()
					go func() { _, _ = m.RESTMapping(lateKind.GroupKind()) }()
					for _, form := range lookupForms(fooKind) {
						form.wantAnswer(t, m, fmt.Sprintf("while the server forgets, round %d", n))
					}
					wantServed(t, m, fooKind, barKind, otherKind)
					time.Sleep(time.Minute)
				}
			})
		})
	}
}

// No subscriber receives that a kind has gone, and no program ends because of it.
func TestSubscribersWhileTheServerForgets(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		server.PutVersion("apps", fakeVersion("v1", "Deployment"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second})
		stop := startMapper(t, m)
		synctest.Wait()
		s := subscribe(m)
		s.take(t)
		c := runController(m, fooKind, otherKind)
		for range 10 {
			restart(server, 200*time.Millisecond, func() { time.Sleep(3 * time.Second) })
			for range 20 {
				_ = lookUp(m, lateKind)
				time.Sleep(20 * time.Millisecond)
			}
			time.Sleep(10 * time.Second)
		}
		s.want(t, "after all")
		c.want(t, 1, 0)
		c.wantReturn(t, true, nil)
		s.close(t)
		stop()
	})
}

// A kind that really went during an outage is found to be gone within about a second.
func TestGoneAfterAnOutage(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		up := server.SetFault(fakeapi.All(), fakeapi.Refused())
		_ = lookUp(m, lateKind)
		up()
		server.Remove(fooKind.Group)
		m.Reset()
		start := time.Now()
		if err := lookUp(m, fooKind); !meta.IsNoMatchError(err) {
			t.Errorf("%v; want NoMatch", err)
		}
		if took := time.Since(start); took > 1500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		start = time.Now()
		wantAbsent(t, m, fooKind, barKind)
		if took := time.Since(start); took > 0 {
			t.Errorf("what is known to be gone took %v", took)
		}
	})
}

// A group that keeps failing casts no doubt on others: a kind of another group that has
// gone is found to be gone at once, by one request.
func TestDeadGroupCastsNoDoubt(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"503": fakeapi.Status(http.StatusServiceUnavailable, 0), "403": fakeapi.Status(http.StatusForbidden, 0), "cut": fakeapi.ResetMidBody(),
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.SetFault(fakeapi.InGroup(otherKind.Group), fault)
				absent := otherKind
				absent.Kind = "Absent"
				if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
					t.Fatalf("in the dead group: %v", err)
				}
				time.Sleep(time.Minute) // a group that has just begun to fail may be the server that starts
				if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
					t.Fatalf("in the dead group, a minute later: %v", err)
				}
				server.RemoveVersion(fooKind.Group, fooKind.Version)
				synctest.Wait() // for the health of the server, which may be asked for
				server.TakeRequests()
				absent = fooKind
				absent.Kind = "Absent"
				start := time.Now()
				wantAbsent(t, m, absent, fooKind)
				if took := time.Since(start); took > 0 {
					t.Errorf("it took %v", took)
				}
				if got := server.TakeRequests(); len(got) != 2 {
					t.Errorf("requests %v, want one for each of two misses", got)
				}
			})
		})
	}
}

// An absence of the version that failed is itself doubted.
func TestVersionThatFailedIsDoubted(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		unknown := []string{fooKind.Group}
		server.Boot(fakeapi.Booting{Unknown: unknown})
		absent := fooKind
		absent.Kind = "Absent"
		if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
			t.Fatalf("while it does not answer: %v", err)
		}
		ready := server.Boot(fakeapi.Booting{Unknown: unknown, Absent: true})
		time.AfterFunc(200*time.Millisecond, ready)
		wantAbsent(t, m, absent)
		wantServed(t, m, fooKind, barKind)
	})
}
