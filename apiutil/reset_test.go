// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// waysToReset are the ways to reset a mapper.
var waysToReset = map[string]func(*apiutil.DynamicRESTMapper){
	"Reset":                func(m *apiutil.DynamicRESTMapper) { m.Reset() },
	"ResetWithContext":     func(m *apiutil.DynamicRESTMapper) { m.ResetWithContext(context.Background()) },
	"ResetGroup":           func(m *apiutil.DynamicRESTMapper) { m.ResetGroup(fooKind.Group) },
	"MaybeResetRESTMapper": func(m *apiutil.DynamicRESTMapper) { meta.MaybeResetRESTMapper(m) },
	"ResetOnNoMatch":       func(m *apiutil.DynamicRESTMapper) { apiutil.ResetOnNoMatch(&meta.NoKindMatchError{}, m) },
}

// F3: what came, changed and went is all there after a reset, and the reset
// itself sends nothing.
func TestResetMakesFresh(t *testing.T) {
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		for name, reset := range waysToReset {
			t.Run(name, func(t *testing.T) {
				defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
				server := newServer(forms)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				reset(m) // before anything was read
				readAll(t, m)
				server.SetGroups(
					fakeGroup("example.com", fakeVersion("v2", "Foo"), fakeVersion("v1", "Foo:cluster", "Baz")),
					fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")),
				)
				server.TakeRequests()
				wantServed(t, m, fooKind, barKind) // nobody knows yet
				reset(m)
				reset(m)
				wantRequests(t, server, "resetting")

				mapping, err := m.RESTMapping(fooKind.GroupKind(), "v1")
				if got := answered(mappingText(mapping), err); got != "example.com/v1 Foo -> foos, root" {
					t.Errorf("a kind that changed: %s", got)
				}
				if n := len(server.TakeRequests()); n == 0 {
					t.Error("answered without a request")
				}
				mapping, err = m.RESTMapping(fooKind.GroupKind())
				if got := answered(mappingText(mapping), err); got != "example.com/v2 Foo -> foos, namespace" {
					t.Errorf("a kind with another preferred version: %s", got)
				}
				wantAbsent(t, m, barKind)
				baz := barKind
				baz.Kind = "Baz"
				wantServed(t, m, baz)
				if name != "ResetGroup" {
					wantAbsent(t, m, otherKind)
				}
				server.TakeRequests()
				wantServed(t, m, fooKind, baz)
				wantRequests(t, server, "hits after the first lookup")
			})
		}
	})
}

func (resettableMapper) Reset() { resetCounts.plain.Add(1) }

func (withContextMapper) ResetWithContext(context.Context) { resetCounts.withContext.Add(1) }

func (bothMapper) Reset() { resetCounts.plain.Add(1) }

func (bothMapper) ResetWithContext(ctx context.Context) {
	resetCounts.withContext.Add(1)
	_ = ctx.Err()
}

// F3: what is looked up after a reset is as it was at the reset, or newer.
func TestResetsSeeWhatWasServedBefore(t *testing.T) {
	eachTenant(t, 40, func(t *testing.T, who *tenant, round int) {
		kind := "Shape" + who.group[:2]
		want := meta.RESTScopeNameNamespace
		switch round % 3 {
		case 0:
			who.server.PutVersion(who.group, fakeVersion("v1", "Always", kind))
		case 1:
			who.server.PutVersion(who.group, fakeVersion("v1", "Always", kind+":cluster"))
			want = meta.RESTScopeNameRoot
		case 2:
			who.server.PutVersion(who.group, fakeVersion("v1", "Always"))
			want = ""
		}
		if who.rnd.IntN(2) == 0 {
			who.mapper.Reset()
		} else {
			who.mapper.ResetGroup(who.group)
		}
		if want == "" {
			if form, answer, err := who.ask(kind); !meta.IsNoMatchError(err) {
				t.Errorf("%s of what is gone: %q, %v", form.name, answer, err)
			}
			return
		}
		versions := [][]string{nil, {"v1"}, {"v2", "v1"}}[who.rnd.IntN(3)]
		mapping, err := who.mapper.RESTMapping(schema.GroupKind{Group: who.group, Kind: kind}, versions...)
		if err != nil || mapping.Scope.Name() != want {
			t.Errorf("%q: %v, %v; want scope %s", versions, mapping, err, want)
		}
	})
}
