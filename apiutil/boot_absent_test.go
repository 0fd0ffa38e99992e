// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
