// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"sync"
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

// confirm confirms the mapping that was used, and uses the result from then on. A mere
// doubt has no result: the kind is looked up once what it has begun is over. confirm
// returns the number of requests.
func (d *doubter) confirm(contradicted bool) (requests int, err error) {
	var now *meta.RESTMapping
	if contradicted {
		now, err = d.mapper.Confirm(context.Background(), d.used)
		requests = len(d.server.TakeRequests())
	} else {
		d.mapper.Doubt(d.used)
		synctest.Wait()
		requests = len(d.server.TakeRequests())
		now, err = d.mapper.RESTMapping(fooKind.GroupKind(), fooKind.Version)
		d.server.TakeRequests()
	}
	if err == nil {
		d.used = now
	}
	return requests, err
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

// A doubt costs one read of its version a minute.
func TestConfirmBoundsDoubts(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		d.want("the first", doubtful, true, meta.RESTScopeNameNamespace)
		for range 59 {
			time.Sleep(time.Second)
			d.want("within a minute", doubtful, false, meta.RESTScopeNameNamespace)
		}
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

// Whatever reasons there are: a burst of 4 reads, then one every 4 seconds. Each is one
// request, also for a kind that is gone.
func TestConfirmBoundsContradictions(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		for name, serve := range map[string][]string{"unchanged": {"Foo", "Bar"}, "gone": {"Bar"}} {
			d := newDoubter(t, server)
			d.serve(serve...)
			sent := 0
			for range 600 { // a minute
				requests, err := d.confirm(certain)
				if err != nil && !meta.IsNoMatchError(err) {
					t.Fatal(err)
				}
				sent += requests
				time.Sleep(100 * time.Millisecond)
			}
			if sent > 20 || sent < 15 {
				t.Errorf("%s: %d requests in a minute, want from 15 to 20", name, sent)
			}
			d.serve("Foo", "Bar")
		}
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
				now, err := d.mapper.Confirm(context.Background(), d.used)
				if err != nil || want != "" && now.Scope.Name() != want {
					t.Errorf("%v, %v; want %s", now, err, want)
				}
			}()
		}
		confirm("")
		time.Sleep(900 * time.Millisecond)
		d.serve("Foo:cluster", "Bar")
		for range 50 {
			confirm("")
		}
		all.Wait()
		if n := len(server.TakeRequests()); n > 2 {
			t.Errorf("%d requests for 51 calls", n)
		}
	})
}

// If discovery hangs, a contradiction waits for 2 seconds, and a doubt not at all. One
// read is under way at a time.
func TestConfirmBesideHangingDiscovery(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		d := newDoubter(t, server)
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		start := time.Now()
		for range 100 {
			d.mapper.Doubt(d.used)
		}
		if took := time.Since(start); took > 0 {
			t.Errorf("doubts waited %v", took)
		}
		allAtOnce(20, func(int) {
			begun := time.Now()
			if now, err := d.mapper.Confirm(context.Background(), d.used); meta.IsNoMatchError(err) || err == nil && !sameAs(now, d.used) {
				t.Errorf("%v, %v", now, err)
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Errorf("a contradiction waited %v", took)
			}
		})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if _, err := d.mapper.Confirm(ctx, d.used); meta.IsNoMatchError(err) {
			t.Errorf("an outage is taken for an absence: %v", err)
		}
		time.Sleep(time.Minute) // for the requests to time out
		if n := len(server.TakeRequests()); n > 4 {
			t.Errorf("%d requests", n)
		}
	})
}

func sameAs(a, b *meta.RESTMapping) bool { return a.Resource == b.Resource && a.Scope == b.Scope }
