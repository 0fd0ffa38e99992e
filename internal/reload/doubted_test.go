// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// doubting is a reloader that knows a server which has failed just now, so that it
// doubts absences.
func doubting(t *testing.T) (*fakeapi.Server, *Reloader) {
	t.Helper()
	server, r := known(t, fakeapi.Aggregated())
	up := server.SetFault(fakeapi.All(), fakeapi.Refused())
	if err := r.Refresh(context.Background()); err == nil {
		t.Fatal("the server does not fail")
	}
	up()
	server.TakeRequests()
	return server, r
}

// A doubted read is as young as the last of its requests: a document that began
// between two of them does not count for more.
func TestDoubtedReadCountsFromItsLastRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := doubting(t)
		ctx := context.Background()
		server.RemoveVersion(group, "v1")
		read := make(chan *snapshot.Snapshot)
		go func() {
			s, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: "v1"})
			if err != nil {
				t.Error(err)
			}
			read <- s
		}()
		time.Sleep(100 * time.Millisecond)
		server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Short", true)}})
		if err := r.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Lasting", true)}})
		<-read
		for kind, want := range map[string]bool{"Short": false, "Lasting": true} {
			if _, _, err := r.Snapshot().RESTMapping(schema.GroupKind{Group: group, Kind: kind}, []string{"v1"}); (err == nil) != want {
				t.Errorf("%s: %v", kind, err)
			}
		}
	})
}

// A lookup may doubt several absences one after the other, and still ends in what
// the server says: it is patient with a server that answers.
func TestPatienceWithDoubts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := doubting(t)
		r.ResetGroup(group)
		server.Remove(group)
		start := time.Now()
		found := r.Lookup(context.Background(), snapshot.Query{Group: group, Name: "Kind"}, func(s *snapshot.Snapshot) (known, settled bool) {
			return s.Serves(group, "v1"), false
		})
		if found.Err != nil || found.Snapshot.Serves(group, "v1") {
			t.Errorf("after %v: %v", time.Since(start), found.Err)
		}
		if took := time.Since(start); took <= patience {
			t.Errorf("it took %v, so that nothing was tried here", took)
		}
	})
}

// If the last waiter leaves while an absence is doubted, that is no absence.
func TestAbandonedDoubt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, read := range map[string]snapshot.Read{"version": version(group, "v1"), "list": {Part: snapshot.PartList, Group: group}} {
			server, r := doubting(t)
			server.Remove(group)
			ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
			if _, err := r.flights.doWhile(ctx, read); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
			if s := r.Snapshot(); !s.Serves(group, "v1") || r.Health().LastError == nil {
				t.Errorf("%s: the version is there: %v; the last error of the server: %v", name, s.Serves(group, "v1"), r.Health().LastError)
			}
			if disputed, dropped := r.Snapshot().Unsettled(); len(disputed)+len(dropped) > 0 {
				t.Errorf("%s: %d groups are disputed, %d dropped", name, len(disputed), len(dropped))
			}
		}
	})
}
