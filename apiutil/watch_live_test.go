// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// eventually waits in real time for what other goroutines are about to do.
func eventually(t *testing.T, what string, happened func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	deadline := time.After(time.Minute)
	for !happened() {
		select {
		case <-tick.C:
		case <-deadline:
			t.Fatalf("not within a minute: %s", what)
		}
	}
}

// A watch in real time: first the role is missing, then it is there, then an event comes,
// then the end.
func TestWatchInRealTime(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	log, logger := newTestLog()
	server := newServer(fakeapi.Aggregated())
	watched := newWatchServer(server)
	crds := watched.lists[crdsPath]
	crds.setFailure(listFailure{code: http.StatusForbidden})
	m := newMapperThrough(t, server, watched, apiutil.DynamicRESTMapperOptions{WatchAPIs: true, Logger: logger})
	stop := startMapper(t, m)
	eventually(t, "the missing role is logged", func() bool { return len(log.containing("ClusterRole")) > 0 })
	crds.setFailure(listFailure{})
	eventually(t, "the watch opens", func() bool { return m.Status().Watching })
	eventually(t, "the server is read", func() bool { return m.Status().Kinds > 0 })

	serve(server, newKind)
	before := m.Generation()
	crds.put("news.new.example.com")
	eventually(t, "the event is answered", func() bool { return m.Generation() > before })
	wantServed(t, m, newKind)
	wantLine(t, log.containing("ClusterRole"), "customresourcedefinitions")

	start := time.Now()
	stop()
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("Start returned %v after its context ended", took)
	}
}
