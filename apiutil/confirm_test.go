// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A doubter uses a mapping of fooKind and has reasons to doubt it.
type doubter struct {
	t      *testing.T
	server *fakeapi.Server
	mapper *apiutil.DynamicRESTMapper
	used   *meta.RESTMapping
}

const certain, doubtful = true, false

func newDoubter(t *testing.T, server *fakeapi.Server) *doubter {
	t.Helper()
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
	used, err := m.RESTMapping(fooKind.GroupKind(), fooKind.Version)
	if err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	return &doubter{t, server, m, used}
}

// confirm confirms the mapping that was used, and uses the result from then on. It
// returns the number of requests.
func (d *doubter) confirm(contradicted bool) (requests int, err error) {
	now, err := d.mapper.Confirm(context.Background(), d.used, contradicted)
	if err == nil {
		d.used = now
	}
	return len(d.server.TakeRequests()), err
}

// want confirms, and checks the number of requests and the result.
func (d *doubter) want(what string, contradicted, asks bool, scope meta.RESTScopeName) {
	d.t.Helper()
	requests, err := d.confirm(contradicted)
	if (requests > 0) != asks {
		d.t.Errorf("%s: %d requests", what, requests)
	}
	switch {
	case scope == "" && !meta.IsNoMatchError(err):
		d.t.Errorf("%s: error %v", what, err)
	case scope != "" && (err != nil || d.used.Scope.Name() != scope):
		d.t.Errorf("%s: %v, %v", what, d.used.Scope, err)
	}
}

func (d *doubter) serve(kinds ...string) {
	d.server.PutVersion(fooKind.Group, fakeVersion(fooKind.Version, kinds...))
}

func TestConfirmSeesChange(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for _, contradicted := range []bool{certain, doubtful} {
			d := newDoubter(t, server)
			d.serve("Foo:cluster", "Bar")
			d.want("another scope", contradicted, true, meta.RESTScopeNameRoot)
			d.serve("Foo", "Bar")
		}
	})
}

// What another client has learned costs no request.
func TestConfirmSharesWhatIsKnown(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		stale := *d.used
		d.serve("Foo:cluster", "Bar")
		d.want("the first", certain, true, meta.RESTScopeNameRoot)
		d.used = &stale
		d.want("the second", certain, false, meta.RESTScopeNameRoot)
	})
}

// A doubt costs one read of its group a minute, whichever kind of the group is in doubt.
func TestConfirmBoundsDoubts(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		d.want("the first", doubtful, true, meta.RESTScopeNameNamespace)
		for range 59 {
			time.Sleep(time.Second)
			d.want("within a minute", doubtful, false, meta.RESTScopeNameNamespace)
		}
		bar, err := d.mapper.RESTMapping(barKind.GroupKind(), barKind.Version)
		if err != nil {
			t.Fatal(err)
		}
		d.used = bar
		d.want("another kind", doubtful, false, meta.RESTScopeNameNamespace)
		time.Sleep(time.Second)
		d.want("after a minute", doubtful, true, meta.RESTScopeNameNamespace)
	})
}

// The minute is over when something has changed.
func TestConfirmDoubtsAfterChange(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		d.want("the first", doubtful, true, meta.RESTScopeNameNamespace)
		serve(server, newKind)
		wantServed(t, d.mapper, newKind)
		server.TakeRequests()
		d.want("after a change", doubtful, true, meta.RESTScopeNameNamespace)
		d.want("after no further change", doubtful, false, meta.RESTScopeNameNamespace)
	})
}

// A kind that changes its scope again and again is seen each time, at the latest
// after the 3 seconds that a reader waits once it has used up its burst.
func TestConfirmFollowsManyChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		scopes := []meta.RESTScopeName{meta.RESTScopeNameRoot, meta.RESTScopeNameNamespace}
		for n := range 20 {
			d.serve([]string{"Foo:cluster", "Foo"}[n%2], "Bar")
			start := time.Now()
			for d.used.Scope.Name() != scopes[n%2] {
				if _, err := d.confirm(certain); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond)
			}
			if took := time.Since(start); took > 3200*time.Millisecond {
				t.Errorf("change %d was seen after %v", n, took)
			}
		}
	})
}

// Whatever reasons there are: a burst of 4 reads, then one every 3 seconds.
func TestConfirmBoundsContradictions(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for name, serve := range map[string][]string{"unchanged": {"Foo", "Bar"}, "gone": {"Bar"}} {
			d := newDoubter(t, server)
			d.serve(serve...)
			reads := 0
			for range 600 { // a minute
				requests, err := d.confirm(certain)
				if err != nil && !meta.IsNoMatchError(err) {
					t.Fatal(err)
				}
				reads += requests
				time.Sleep(100 * time.Millisecond)
			}
			if most := 3 * (confirmBurst + 20); reads > most || reads < 20 {
				t.Errorf("%s: %d requests in a minute, want from 20 to %d", name, reads, most)
			}
			d.serve("Foo", "Bar")
		}
	})
}

const confirmBurst = 4

// Each group has its own burst of 4 reads, and its own minute for doubts.
func TestConfirmBoundsEachGroup(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		other, err := d.mapper.RESTMapping(otherKind.GroupKind(), otherKind.Version)
		if err != nil {
			t.Fatal(err)
		}
		server.TakeRequests()
		foo := d.used
		for n := range confirmBurst + 1 {
			for _, d.used = range []*meta.RESTMapping{foo, other} {
				d.want(fmt.Sprintf("number %d of %s", n, d.used.Resource), certain, n < confirmBurst, meta.RESTScopeNameNamespace)
			}
		}
		time.Sleep(30 * time.Second)
		for _, d.used = range []*meta.RESTMapping{foo, other} {
			d.want("within a minute", doubtful, false, meta.RESTScopeNameNamespace)
		}
	})
}

func TestConfirmKindThatIsGone(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		d.serve("Bar")
		d.want("gone", doubtful, true, "")
		if _, err := d.confirm(doubtful); !meta.IsNoMatchError(err) { // looked up at the new generation
			t.Errorf("still gone: %v", err)
		}
		d.want("gone for good", doubtful, false, "")
		d.serve("Foo:cluster", "Bar")
		d.want("back, and nobody is sure", doubtful, false, "")
		d.want("back", certain, true, meta.RESTScopeNameRoot)
	})
}

// A lookup that is answered from NegativeTTL's memory is no read.
func TestConfirmWithNegativeTTL(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		d.mapper = newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		d.serve("Bar")
		for range 3 {
			if _, err := d.confirm(certain); !meta.IsNoMatchError(err) {
				t.Errorf("gone: %v", err)
			}
		}
		d.serve("Foo:cluster", "Bar")
		time.Sleep(3 * time.Second)
		d.want("back", certain, true, meta.RESTScopeNameRoot)
	})
}

// The result of a call is never older than the call: a call that arrives during a read
// waits for the next one. All calls that arrive share that next read.
func TestConfirmDuringRead(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		server.SetLatency(time.Second)
		var all sync.WaitGroup
		confirm := func(want meta.RESTScopeName) {
			all.Add(1)
			go func() {
				defer all.Done()
				now, err := d.mapper.Confirm(context.Background(), d.used, certain)
				if err != nil || want != "" && now.Scope.Name() != want {
					t.Errorf("%v, %v; want %s", now, err, want)
				}
			}()
		}
		confirm("")
		time.Sleep(5 * time.Second / 2) // the read has seen the group
		d.serve("Foo:cluster", "Bar")
		for range 50 {
			confirm(meta.RESTScopeNameRoot)
		}
		all.Wait()
		if n := len(server.TakeRequests()); n > 8 {
			t.Errorf("%d requests for 51 calls", n)
		}
	})
}

func TestConfirmEndsWithContext(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		ctx, cancel := context.WithCancel(context.Background())
		begun := time.Now()
		for range 3 {
			go func() { _, _ = d.mapper.Confirm(ctx, d.used, certain) }()
		}
		synctest.Wait()
		cancel()
		synctest.Wait()
		if _, err := d.mapper.Confirm(context.Background(), d.used, certain); err == nil {
			t.Log("the kind is known still") // allowed: an outage is not an absence
		} else if meta.IsNoMatchError(err) {
			t.Errorf("an outage is taken for an absence: %v", err)
		}
		if took := time.Since(begun); took > 10*time.Second {
			t.Errorf("a caller waited %v for a server that is silent", took)
		}
		time.Sleep(time.Minute) // for the requests to time out
	})
}

// A call that comes during another call's read, and may not read itself, returns what
// that read has found.
func TestConfirmBesideAnothersRead(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		was, err := m.RESTMapping(fooKind.GroupKind(), fooKind.Version)
		if err != nil {
			t.Fatal(err)
		}
		server.PutVersion(fooKind.Group, fakeVersion(fooKind.Version, "Foo:cluster"))
		server.SetLatency(time.Second)
		allAtOnce(3, func(i int) {
			time.Sleep(time.Duration(i) * 300 * time.Millisecond)
			now, err := m.Confirm(context.Background(), was, false)
			if err != nil || now.Scope.Name() != meta.RESTScopeNameRoot {
				t.Errorf("call %d: %v, %v", i, now, err)
			}
		})
	})
}

// If the discovery of a group hangs, one doubt a minute waits for its answer, and the
// other doubts do not wait for that one.
func TestConfirmBesideHangingDiscovery(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		was, err := m.RESTMapping(fooKind.GroupKind(), fooKind.Version)
		if err != nil {
			t.Fatal(err)
		}
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		var patient atomic.Int64
		allAtOnce(20, func(int) {
			for began := time.Now(); time.Since(began) < 3*time.Minute; time.Sleep(time.Second) {
				start := time.Now()
				if now, err := m.Confirm(context.Background(), was, false); err != nil || now.Resource != was.Resource {
					t.Errorf("%v, %v", now, err)
				}
				if time.Since(start) > time.Second {
					patient.Add(1)
				}
			}
		})
		if patient.Load() > 4 {
			t.Errorf("%d calls waited for more than a second", patient.Load())
		}
	})
}
