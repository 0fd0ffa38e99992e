// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newReloader makes a reloader of a fake server.
func newReloader(t *testing.T, server *fakeapi.Server, options Options) *Reloader {
	t.Helper()
	client, err := discovery.NewClient(server.Config(), server.Client(), discovery.Options{
		RequestTimeout: 30 * time.Second, MaxResponseBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, options)
}

// readAll reads every version.
func readAll(t *testing.T, r *Reloader) {
	defer r.KeepAll()()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatalf("the first refresh: %v", err)
	}
}

// find looks for a kind and returns the version that it is found in.
func find(ctx context.Context, r *Reloader, group, kind string, versions ...string) (string, error) {
	gk := schema.GroupKind{Group: group, Kind: kind}
	found := r.Lookup(ctx, snapshot.KindQuery(gk, versions), func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := s.RESTMapping(gk, versions)
		return err == nil, current
	})
	m, _, err := found.Snapshot.RESTMapping(gk, versions)
	switch {
	case err == nil:
		return m.GroupVersionKind.Version, nil
	case found.Err != nil:
		return "", found.Err
	case len(found.Failed) > 0:
		return "", fmt.Errorf("failed: %v", found.Failed)
	}
	return "", err
}

// serving is a version that serves a kind.
func serving(version, kind string) fakeapi.Version {
	singular := strings.ToLower(kind)
	return fakeapi.Version{Name: version, Resources: []fakeapi.Resource{{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true}}}
}

const group = "g0001.example.com"

// known is a reloader that has read a server of a few groups with three versions each.
func known(t *testing.T, forms fakeapi.Forms) (*fakeapi.Server, *Reloader) {
	t.Helper()
	server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
	server.SetForms(forms)
	r := newReloader(t, server, Options{})
	readAll(t, r)
	server.TakeRequests()
	return server, r
}

// A caller who abandons a flight ends one that nobody else waits for, and returns when it has
// ended. One that others wait for goes on. Nobody joins one that is abandoned: its transport
// may take a while to stop, and the end of another caller's context is no answer.
func TestAbandonedFlightEnds(t *testing.T) {
	for name, test := range map[string]struct {
		asked  time.Duration // when another caller asks
		answer string
		ends   time.Duration // when the one who abandons it gets its error
	}{
		"alone":  {550 * time.Millisecond, "flight 2", 600 * time.Millisecond},
		"shared": {0, "flight 1", 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			flown := 0
			fs := &flights{tick: func() snapshot.Tick { flown++; return snapshot.Tick(flown) }, current: func() *snapshot.Snapshot { return nil }}
			fs.perform = func(f *flight) {
				f.outcome.Err = fmt.Errorf("flight %d", f.began)
				select {
				case <-time.After(time.Second):
				case <-f.ctx.Done():
				}
				time.Sleep(100 * time.Millisecond) // also if it was cancelled
			}
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(500*time.Millisecond, cancel)
			start := time.Now()
			go func() {
				x := reading{flights: fs, patience: forever, since: never, abandon: true, done: map[snapshot.Read]snapshot.Outcome{}}
				_, err := x.read(ctx, snapshot.ReadVersion("a", "v1"))
				if took := time.Since(start); !errors.Is(err, context.Canceled) || took != test.ends {
					t.Errorf("%s: who abandons it after 500ms gets %v after %v, want the end of its context after %v", name, err, took, test.ends)
				}
			}()
			time.Sleep(test.asked)
			synctest.Wait()
			x := reading{flights: fs, patience: forever, done: map[snapshot.Read]snapshot.Outcome{}}
			if o, err := x.read(context.Background(), snapshot.ReadVersion("a", "v1")); fmt.Sprint(o.Err, err) != test.answer+" <nil>" {
				t.Errorf("%s: who asks after %v gets %v, %v; want %s", name, test.asked, o.Err, err, test.answer)
			}
			synctest.Wait()
		})
	}
}

// Whoever's context has ended reads nothing, and gets its cause.
func TestEndedContextReadsNothing(t *testing.T) {
	server, r := known(t, fakeapi.Legacy())
	reason := errors.New("changed its mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for name, read := range map[string]func() error{
		"a lookup":   func() error { _, err := find(ctx, r, group, "Absent"); return err },
		"a version":  func() error { _, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: "v1"}); return err },
		"two groups": func() error { return r.RefreshGroups(ctx, []string{group, "g0002.example.com"}) },
		"all":        func() error { return r.Refresh(ctx) },
		"many groups": func() error {
			absents := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: "absents"})
			return r.Lookup(ctx, absents, func(*snapshot.Snapshot) (known, current bool) { return false, false }).Err
		},
	} {
		if err := read(); !errors.Is(err, reason) || len(server.TakeRequests()) > 0 {
			t.Errorf("%s: %v; want %v, and no request", name, err, reason)
		}
	}
}

// R3: a lookup has found a kind, and before it can answer somebody publishes a document in which that has
// gone again. It is answered by what it has read itself: otherwise it would find the kind in no version.
func TestLookupIsAnsweredFromItsOwnReads(t *testing.T) {
	for _, versions := range [][]string{nil, {"v1"}, {"v1", "v2"}} {
		server := fakeapi.New(fakeapi.Typical(2, 3, 1)...)
		var r *Reloader
		var once sync.Once
		r = newReloader(t, server, Options{Report: func(report Report) { // before anybody has the result of the read
			if report.Read == snapshot.ReadVersion(group, "v1") {
				once.Do(func() {
					server.PutVersion(group, serving("v1", "Other"))
					if err := r.ReadDocument(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		}})
		if err := r.ReadDocument(context.Background()); err != nil {
			t.Fatal(err)
		}
		server.PutVersion(group, serving("v1", "Late"))
		if v, err := find(context.Background(), r, group, "Late", versions...); v != "v1" {
			t.Errorf("a lookup in %q, whose own read has found the kind in v1: %q, %v", versions, v, err)
		}
		if v, err := find(context.Background(), r, group, "Late", versions...); !meta.IsNoMatchError(err) {
			t.Errorf("the next lookup in %q, which comes after the kind has gone: %q, %v", versions, v, err)
		}
	}
}

// R6: a 404 for a built-in version that the document has: the document, read again, decides whether
// another API server of the cluster serves it (KEP-4020).
func TestVersionOfAPeerStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(append(fakeapi.Typical(1, 1, 1), fakeapi.Group{Name: "policy", Versions: []fakeapi.Version{serving("v1", "Old")}})...)
		server.SetPeers(fakeapi.Group{Name: "policy", Versions: []fakeapi.Version{serving("v2", "New")}}, fakeapi.Group{Name: "batch", Versions: []fakeapi.Version{serving("v1", "Job")}})
		r := newReloader(t, server, Options{})
		look := func(when, group, kind, versions, want string, requests int) {
			t.Helper()
			server.TakeRequests()
			v, err := find(context.Background(), r, group, kind, strings.Fields(versions)...)
			if sent := server.TakeRequests(); v != want || want == "" && !meta.IsNoMatchError(err) || len(sent) != requests {
				t.Errorf("%s: %s in %q is found in %q, error %v, after %d requests; want %q after %d", when, kind, versions, v, err, len(sent), want, requests)
			}
		}
		look("at first", "policy", "New", "v2", "v2", 2)
		look("what nobody serves", "policy", "Absent", "v2", "", 3)
		look("known", "policy", "New", "v2", "v2", 0)
		look("a version that the document does not have", "policy", "New", "v9", "", 1)
		look("a group that peers alone serve, and its list", "batch", "Absent", "", "", 6)
		server.SetPeers()
		look("the peer is gone", "policy", "Absent", "v2", "", 3)
		look("the document has told that the version is gone", "policy", "New", "v2", "", 1)
	})
}

// The timer keeps no mapper alive.
func TestAgeLetsGo(t *testing.T) {
	r := newReloader(t, fakeapi.New(fakeapi.Typical(2, 1, 1)...), Options{MaxAge: time.Hour})
	readAll(t, r)
	left := weak.Make(r)
	for range 3000 { // 30 s: goroutines that have answered may still be ending
		if runtime.GC(); left.Value() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a mapper that nobody uses is still in memory: its timer, which runs for an hour, refers to it")
}
