// SPDX-License-Identifier: Apache-2.0

package latekinds

import (
	"context"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// gate passes the events of a kind on to a handler until it is closed, and knows which objects are left then.
type gate[object client.Object, request comparable] struct {
	to         handler.TypedEventHandler[object, request]
	predicates []predicate.TypedPredicate[object]
	queue      workqueue.TypedRateLimitingInterface[request]
	later      bool // what comes first is no initial list: the handler has had one

	mu     sync.Mutex // held during each call: there is one at a time. It guards the rest
	closed bool
	knows  map[types.NamespacedName]object // each object as it was told last
}

// tell calls call with what the gate knows, unless it is closed.
func (g *gate[object, request]) tell(call func(knows map[types.NamespacedName]object)) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return
	}
	if g.knows == nil {
		g.knows = map[types.NamespacedName]object{}
	}
	call(g.knows)
}

func (g *gate[object, request]) Create(ctx context.Context, e event.TypedCreateEvent[object], queue workqueue.TypedRateLimitingInterface[request]) {
	g.tell(func(knows map[types.NamespacedName]object) {
		knows[client.ObjectKeyFromObject(e.Object)] = e.Object
		if g.later { // older versions have no field that says so
			e = event.TypedCreateEvent[object]{Object: e.Object}
		}
		for _, p := range g.predicates {
			if !p.Create(e) {
				return
			}
		}
		g.to.Create(ctx, e, queue)
	})
}

func (g *gate[object, request]) Update(ctx context.Context, e event.TypedUpdateEvent[object], queue workqueue.TypedRateLimitingInterface[request]) {
	g.tell(func(knows map[types.NamespacedName]object) {
		knows[client.ObjectKeyFromObject(e.ObjectNew)] = e.ObjectNew
		for _, p := range g.predicates {
			if !p.Update(e) {
				return
			}
		}
		g.to.Update(ctx, e, queue)
	})
}

func (g *gate[object, request]) Delete(ctx context.Context, e event.TypedDeleteEvent[object], queue workqueue.TypedRateLimitingInterface[request]) {
	g.tell(func(knows map[types.NamespacedName]object) {
		delete(knows, client.ObjectKeyFromObject(e.Object))
		g.delete(ctx, e, queue)
	})
}

func (g *gate[object, request]) delete(ctx context.Context, e event.TypedDeleteEvent[object], queue workqueue.TypedRateLimitingInterface[request]) {
	for _, p := range g.predicates {
		if !p.Delete(e) {
			return
		}
	}
	g.to.Delete(ctx, e, queue)
}

// Generic is never called: informers have no such events.
func (g *gate[object, request]) Generic(context.Context, event.TypedGenericEvent[object], workqueue.TypedRateLimitingInterface[request]) {
}

// close makes sure that the handler is told nothing more, but for tellGone.
func (g *gate[object, request]) close() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// tellGone tells that all that is left is deleted. The gate is closed.
func (g *gate[object, request]) tellGone(ctx context.Context) {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []types.NamespacedName
	for name := range g.knows {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b types.NamespacedName) int { return strings.Compare(a.String(), b.String()) })
	for _, name := range names {
		g.delete(ctx, event.TypedDeleteEvent[object]{Object: g.knows[name], DeleteStateUnknown: true}, g.queue)
	}
	g.knows = nil
}
