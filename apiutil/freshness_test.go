// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A tenant is one of several goroutines that change a group of their own on the
// server and look at it through a mapper that all share. What it has changed, it
// must see: the others' flights, resets and changes must not get in the way.
type tenant struct {
	server *fakeapi.Server
	mapper *apiutil.DynamicRESTMapper
	group  string
	rnd    *rand.Rand
}

// eachTenant runs story in eight goroutines at once.
func eachTenant(t *testing.T, rounds int, story func(t *testing.T, who *tenant, round int)) {
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
		server.SetForms(forms)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		var wg sync.WaitGroup
		for n := range 8 {
			who := &tenant{server, m, fmt.Sprintf("g%d.example.com", n), rand.New(rand.NewPCG(uint64(n), 2))}
			server.Put(fakeGroup(who.group, fakeVersion("v1", "Always")))
			wg.Add(1)
			go func() {
				defer wg.Done()
				for round := range rounds {
					story(t, who, round)
				}
			}()
		}
		wg.Wait()
	})
}

// ask asks for a kind of the tenant's in one form of those that name a group, or none.
func (who *tenant) ask(kind string) (lookupForm, string, error) {
	forms := lookupForms(schema.GroupVersionKind{Group: who.group, Version: "v1", Kind: kind})
	form := forms[who.rnd.IntN(len(forms))]
	answer, err := form.ask(context.Background(), who.mapper)
	return form, answer, err
}

// F2: what the server served before a lookup began is not "no match".
func TestMissesSeeWhatWasServedBefore(t *testing.T) {
	eachTenant(t, 25, func(t *testing.T, who *tenant, round int) {
		kind := fmt.Sprintf("K%sx%d", who.group[:2], round) // in no other group: some forms name none
		who.server.PutVersion(who.group, fakeVersion("v1", "Always", kind))
		if form, answer, err := who.ask(kind); err != nil || answer != form.want {
			t.Errorf("%s: %q, %v", form.name, answer, err)
		}
	})
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

// Whoever only ever asks for what is always there is never let down by the others.
func TestOthersDoNotDisturb(t *testing.T) {
	eachTenant(t, 40, func(t *testing.T, who *tenant, round int) {
		switch who.rnd.IntN(4) {
		case 0:
			who.mapper.Reset()
		case 1:
			who.mapper.ResetGroup(who.group)
		case 2:
			if form, answer, err := who.ask("Never"); !meta.IsNoMatchError(err) {
				t.Errorf("%s: %q, %v", form.name, answer, err)
			}
		}
		for _, versions := range [][]string{nil, {"v1"}} {
			if _, err := who.mapper.RESTMapping(schema.GroupKind{Group: who.group, Kind: "Always"}, versions...); err != nil {
				t.Errorf("%q: %v", versions, err)
			}
		}
		if kind, err := who.mapper.KindFor(schema.GroupVersionResource{Resource: "pods"}); err != nil || kind.Kind != "Pod" {
			t.Errorf("%v, %v", kind, err)
		}
	})
}
