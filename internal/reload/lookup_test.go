// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

const group = "g0001.example.com"

// known is a reloader that has read a server of a few groups with three versions each.
func known(t *testing.T, forms fakeapi.Forms) (*fakeapi.Server, *Reloader) {
	t.Helper()
	server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
	server.SetForms(forms)
	r := newReloader(t, server)
	defer r.KeepAll()()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatal(err)
	}
	server.TakeRequests()
	return server, r
}

// A lookup of something known waits once for a read that cannot begin, because an earlier one of the
// same version hangs.
func TestWaitsOnceForAHangingRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Legacy())
		server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Old")}})
		if _, err := find(context.Background(), r, group, "Old", "v1"); err != nil {
			t.Fatal(err)
		}
		server.SetFault(fakeapi.At("/apis/"+group+"/v1"), fakeapi.Timeout())
		go func() { _, _ = find(context.Background(), r, group, "Absent", "v1") }()
		synctest.Wait()
		r.ResetGroup(group)
		began := time.Now()
		v, err := find(context.Background(), r, group, "Old", "v1")
		if took := time.Since(began); v != "v1" || took != patience {
			t.Errorf("%q, %v after %v; want it after %v", v, err, took, patience)
		}
		time.Sleep(2 * time.Minute) // until both reads have ended
	})
}

// R3: a lookup has found a kind, and before it can answer somebody publishes a document in which that has
// gone again. It is answered by what it has read itself: otherwise it would find the kind in no version.
func TestLookupIsAnsweredFromItsOwnReads(t *testing.T) {
	for _, versions := range [][]string{nil, {"v1"}, {"v1", "v2"}} {
		server := fakeapi.New(fakeapi.Typical(2, 3, 1)...)
		serve := func(kind string) {
			server.PutVersion(group, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource(kind)}})
		}
		var r *Reloader
		var once sync.Once
		r = newReloaderWith(t, server, Options{Report: func(report Report) { // before anybody has the result of the read
			if report.Read == snapshot.ReadVersion(group, "v1") {
				once.Do(func() {
					serve("Other")
					if err := r.ReadDocument(context.Background()); err != nil {
						t.Error(err)
					}
				})
			}
		}})
		if err := r.ReadDocument(context.Background()); err != nil {
			t.Fatal(err)
		}
		serve("Late")
		if v, err := find(context.Background(), r, group, "Late", versions...); v != "v1" {
			t.Errorf("in %q: %q, %v", versions, v, err)
		}
		if v, err := find(context.Background(), r, group, "Late", versions...); !meta.IsNoMatchError(err) {
			t.Errorf("in %q the next lookup: %q, %v", versions, v, err)
		}
	}
}

// Whoever's context has ended reads nothing, and gets its cause.
func TestEndedContextReadsNothing(t *testing.T) {
	server, r := known(t, fakeapi.Legacy())
	reason := errors.New("changed its mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for name, read := range map[string]func() error{
		"a lookup":    func() error { _, err := find(ctx, r, group, "Absent"); return err },
		"a version":   func() error { _, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: "v1"}); return err },
		"two groups":  func() error { return r.RefreshGroups(ctx, []string{group, "g0002.example.com"}) },
		"all":         func() error { return r.Refresh(ctx) },
		"many groups": func() error { return r.Lookup(ctx, snapshot.Query{ByResource: true, Name: "absents"}, notFound).Err },
	} {
		if err := read(); !errors.Is(err, reason) || len(server.TakeRequests()) > 0 {
			t.Errorf("%s: %v; want %v, and no request", name, err, reason)
		}
	}
}
