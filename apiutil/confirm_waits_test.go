// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
