// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// withVerbs is fakeVersion with one kind, whose resource has these verbs.
func withVerbs(kind string, verbs ...string) fakeapi.Version {
	v := fakeVersion("v1", kind)
	v.Resources[0].Verbs = verbs
	return v
}

// verbsOf returns the verbs of a kind in a batch, after the type of the change.
func verbsOf(batch []apiutil.APIChange, kind string) string {
	for _, change := range batch {
		if change.Mapping.GroupVersionKind.Kind == kind {
			return string(change.Type) + " " + strings.Join(change.Verbs, " ")
		}
	}
	return ""
}

// Subscribers are told of the verbs, also when these alone change; and of a kind that goes,
// what they were.
func TestVerbsAreAPartOfTheAPI(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		ctx, cancel := context.WithCancel(context.Background())
		changes := m.Subscribe(ctx)
		told := func(what, kind, want string) {
			t.Helper()
			synctest.Wait()
			var batch []apiutil.APIChange
			select {
			case batch = <-changes:
			default:
			}
			if got := verbsOf(batch, kind); got != want || what != "at first" && len(batch) > 1 {
				t.Errorf("%s: %q of %d changes, want %q", what, got, len(batch), want)
			}
		}
		refresh := func() {
			t.Helper()
			if err := m.Refresh(ctx); err != nil {
				t.Error(err)
			}
		}
		told("at first", "Other", "Added create delete deletecollection get list patch update watch")
		generation := m.Generation()
		for _, step := range []struct {
			what  string
			verbs []string
			told  string
			moves bool
		}{
			{"as of a CRD that is being deleted", []string{"delete", "deletecollection", "get", "list", "watch"}, "Changed delete deletecollection get list watch", true},
			{"in another order", []string{"watch", "get", "list", "deletecollection", "delete", "get"}, "", false},
			{"with one that is none", []string{"watch", "dance", "get", "list", "deletecollection", "delete"}, "", false},
			{"none", []string{}, "Changed ", true},
		} {
			server.PutVersion("other.example.com", withVerbs("Other", step.verbs...))
			refresh()
			told(step.what, "Other", step.told)
			if now := m.Generation(); now > generation != step.moves {
				t.Errorf("%s: generation %d after %d", step.what, now, generation)
			} else {
				generation = now
			}
		}
		server.PutVersion("other.example.com", withVerbs("Other", "get"))
		refresh()
		told("one", "Other", "Changed get")
		server.Remove("other.example.com")
		refresh()
		told("gone", "Other", "Removed get")
		cancel()
		synctest.Wait()
	})
}

// The document and the live list may have verbs in another order. That is no difference: a
// refresh after a live read is still two 304s.
func TestOrderOfVerbsIsNoDifference(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		server.PutVersion("other.example.com", withVerbs("Other", "get", "list", "watch"))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		readAll(t, m)
		server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
		server.PutVersion("other.example.com", withVerbs("Other", "watch", "list", "get", "list"))
		generation := m.Generation()
		absent := schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Absent"}
		for range 3 {
			wantAbsent(t, m, absent) // reads the version
			server.TakeRequests()
			if err := m.Refresh(context.Background()); err != nil {
				t.Error(err)
			}
			wantRequests(t, server, "a refresh", "/api 304", "/apis 304")
		}
		if m.Generation() != generation {
			t.Error("the generation moved")
		}
	})
}
