// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"maps"
	"math/rand/v2"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// churned are kinds that come and go, in a group of their own and in one with a
// kind that stays.
func churned() []kind {
	return []kind{
		{group: "churn.example.com", kind: "Leaf", versions: []string{"v1"}},
		{group: "churn.example.com", kind: "Wave", versions: []string{"v1", "v2"}},
		{group: "mixed.example.com", kind: "Sand", versions: []string{"v1"}},
		{group: "mixed.example.com", kind: "Dune", versions: []string{"v2", "v1"}},
		{group: "gusts.example.com", kind: "Gust", versions: []string{"v1"}},
	}
}

// churn creates, deletes and changes CRDs, half of the time each kind is there.
func (l *load) churn(ctx context.Context, r *rand.Rand) {
	for ctx.Err() == nil {
		l.churning.Lock()
		k, crds := churned()[r.IntN(len(churned()))], l.c.crds[r.IntN(len(l.c.crds))]
		switch r.IntN(4) {
		case 0, 1:
			k.cluster = r.IntN(2) == 0
			_, _ = crds.Create(ctx, k.crd(), metav1.CreateOptions{})
		case 2:
			_ = crds.Delete(ctx, k.name(), metav1.DeleteOptions{})
		default: // one of its versions is not served for a while
			if have, err := crds.Get(ctx, k.name(), metav1.GetOptions{}); err == nil {
				toggle(have.Object)
				_, _ = crds.Update(ctx, have, metav1.UpdateOptions{})
			}
		}
		l.churning.Unlock()
		report.Pause(ctx, time.Duration(r.Int64N(int64(1500*time.Millisecond))))
	}
}

// toggle takes the last version of a CRD out of service, or back in.
func toggle(crd map[string]any) {
	spec, _ := crd["spec"].(map[string]any)
	versions, _ := spec["versions"].([]any)
	if len(versions) < 2 {
		return
	}
	last, _ := versions[len(versions)-1].(map[string]any)
	on, _ := last["served"].(bool)
	last["served"] = !on
}

// runSteady runs what nothing may end: its kinds are served throughout.
func (l *load) runSteady(ctx context.Context) {
	gvks := []schema.GroupVersionKind{}
	for _, s := range steady() {
		gvks = append(gvks, s.gvk)
	}
	_ = l.m.RunWhileServed(ctx, func(runs context.Context) error {
		<-runs.Done()
		time.Sleep(10 * time.Millisecond) // ctx may be what ended it
		if ctx.Err() == nil {
			l.found.broken.Add("RunWhileServed stopped what needs only kinds that are served throughout: %v", context.Cause(runs))
		}
		return nil
	}, gvks...)
}

func (l *load) runChurned(ctx context.Context) {
	_ = l.m.RunWhileServed(ctx, func(runs context.Context) error {
		l.runs.Add(1)
		<-runs.Done()
		return nil
	}, churned()[0].gvk("v1"))
}

// view is what a subscriber has been told is served.
type view struct {
	pause time.Duration // of a slow receiver

	mu     sync.Mutex
	served map[schema.GroupVersionKind]string
}

func newView(pause time.Duration) *view {
	return &view{pause: pause, served: map[schema.GroupVersionKind]string{}}
}

func (v *view) follow(changes <-chan []apiutil.APIChange) {
	for batch := range changes {
		v.mu.Lock()
		for _, change := range batch {
			m := change.Mapping
			if change.Type == apiutil.APIRemoved {
				delete(v.served, m.GroupVersionKind)
			} else {
				v.served[m.GroupVersionKind] = describe(m.Resource.Resource, m.Scope.Name() == meta.RESTScopeNameNamespace)
			}
		}
		v.mu.Unlock()
		time.Sleep(v.pause)
	}
}

func (v *view) is(truth map[schema.GroupVersionKind]string) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return maps.Equal(v.served, truth)
}
