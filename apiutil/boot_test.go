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
					lost := silent && (name == "Reset" || name == "ResetGroup" && n%2 == 0)
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

// A kind that went for good while the server was down is noticed once the server says so.
func TestGoneThroughABoot(t *testing.T) {
	booting(t, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second}, func(
		t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, boot func() func(),
	) {
		stop := startMapper(t, m)
		server.Remove(otherKind.Group)
		ready := boot()
		time.Sleep(5 * time.Second)
		ready()
		time.Sleep(3 * time.Second)
		if got := m.Status().Groups; got != 3 {
			t.Errorf("%d groups", got)
		}
		wantAbsent(t, m, otherKind)
		wantServed(t, m, fooKind, barKind)
		stop()
	})
}
