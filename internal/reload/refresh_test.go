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
)

// Once everything was asked for, a refresh reads everything, also what has come since.
func TestRefreshAfterReadAll(t *testing.T) {
	for name, all := range map[string]bool{"Refresh": false, "ReadAll": true} {
		t.Run(name, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
			server.SetForms(fakeapi.Legacy())
			r := newReloader(t, server)
			read := r.Refresh
			if all {
				read = r.ReadAll
			}
			if err := read(context.Background()); err != nil {
				t.Fatal(err)
			}
			server.PutVersion(group, fakeapi.Version{Name: "v9", Resources: []fakeapi.Resource{resource("Late", true)}})
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			if v := r.Snapshot().Group(group).Version("v9"); v == nil || (v.Table != nil) != all {
				t.Errorf("the version that has come is %+v", v)
			}
		})
	}
}

// A live read that is not waited for is an error, and no snapshot.
func TestReadLiveGivesUp(t *testing.T) {
	_, r := known(t, fakeapi.Aggregated())
	gone := errors.New("gone")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(gone)
	for _, version := range []string{"v1", ""} {
		s, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: version})
		if !errors.Is(err, gone) || version != "" && s != nil {
			t.Errorf("version %q: %v, a snapshot: %v", version, err, s != nil)
		}
	}
}

// A refresh, of groups or of all, whose context ends while a version hangs ends with it.
func TestRefreshEndsAmongLiveReads(t *testing.T) {
	for name, refresh := range map[string]func(*Reloader, context.Context) error{
		"groups": func(r *Reloader, ctx context.Context) error { return r.RefreshGroups(ctx, []string{group}) },
		"all":    (*Reloader).Refresh,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server, r := known(t, fakeapi.Aggregated())
				r.ResetGroup(group) // so that a refresh reads it live
				server.SetFault(fakeapi.Under("/apis/"+group+"/v3"), fakeapi.Timeout())
				ctx, cancel := context.WithTimeout(context.Background(), time.Second)
				defer cancel()
				start := time.Now()
				err := refresh(r, ctx)
				if took := time.Since(start); took != time.Second {
					t.Errorf("it took %v", took)
				}
				if name == "groups" && !errors.Is(err, context.DeadlineExceeded) {
					t.Error(err)
				}
				time.Sleep(time.Minute) // until the flight has ended
			})
		})
	}
}

// A refresh fails if no connection can be made for any of its live reads; one group that
// cannot be reached is that group's matter.
func TestRefreshWithoutConnection(t *testing.T) {
	ctx := context.Background()
	server, r := known(t, fakeapi.Aggregated())
	const other = "g0002.example.com"
	server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
	for _, name := range []string{group, other} { // of which the document and the live version disagree
		server.PutVersion(name, fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Late", true)}})
		if _, err := r.ReadLive(ctx, schema.GroupVersion{Group: name, Version: "v1"}); err != nil {
			t.Fatal(err)
		}
	}
	server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Refused())
	if err := r.Refresh(ctx); err != nil {
		t.Errorf("one group of two cannot be reached: %v", err)
	}
	server.SetFault(fakeapi.Under("/apis/"+other), fakeapi.Refused())
	if err := r.Refresh(ctx); !unreachable(err) {
		t.Errorf("no group can be reached: %v", err)
	}
}

// A refresh that read no dropped group does not prove that groups have gone which a later
// document has dropped.
func TestNobodyAskedForDroppedGroups(t *testing.T) {
	ctx := context.Background()
	server, r := known(t, fakeapi.Aggregated())
	up := server.SetFault(fakeapi.Under("/apis/"+group), fakeapi.Status(503, 0))
	server.Remove(group)
	if err := r.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	if err := r.lookForDropped(ctx, nil); err != nil || r.Snapshot().Group(group) == nil {
		t.Errorf("%v, the group is there: %v", err, r.Snapshot().Group(group) != nil)
	}
	up()
	if err := r.Refresh(ctx); err != nil || r.Snapshot().Group(group) != nil {
		t.Errorf("%v, the group has gone: %v", err, r.Snapshot().Group(group) == nil)
	}
}
