// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var thing = gvk{Group: "things.example.com", Version: "v1", Kind: "Thing"}

// follower is a client, a cache and a handler that follow a kind.
type follower struct {
	*load
	client client.Client
	cache  cache.Cache

	mu    sync.Mutex
	names []string // what the handler knows, with namespaces
}

// TestReplicas puts two real API servers behind one address, which have no etcd in common. One has a
// kind with another scope than the other, for a while; then both agree. The mapper, a client and a
// cache that follow, and a handler of its must come to know what both say.
func TestReplicas(t *testing.T) {
	c, took := report.Begin(t), times{}
	f := &follower{load: busy(c)}
	f.steady, f.churned, f.churning = builtin, []gvk{thing}, 100
	one, other := newPlane(c, 1).Servers[0], newPlane(c, 1).Servers[0]
	admins := []*admin{newAdmin(c, one), newAdmin(c, other)}
	for _, a := range admins {
		f.move(a, false, "thing0")
	}
	at := newFront(c, one)
	m := f.start(at.config())
	f.agrees(took, m, false, "thing0")
	for n := range *routes {
		cluster, name := n%2 == 0, fmt.Sprint("thing", n+1)
		at.lead(other)
		f.move(admins[0], cluster, name)
		at.lead(one, other)
		for end := time.Now().Add(*gap); time.Now().Before(end) && c.Ctx.Err() == nil; report.Pause(c.Ctx, 50*time.Millisecond) {
			if _, err := f.get(cluster, name); meta.IsNoMatchError(err) {
				c.Broken("both servers have Thing, each with another scope: %v", err)
			}
		}
		at.lead(one) // the resource versions of two etcds cannot be compared
		f.move(admins[1], cluster, name)
		f.agrees(took, m, cluster, name)
	}
	c.Text("%d lookups of what both serve, %d of them ended with an error.\n", f.lookups.Load(), f.errors.Load())
	took.table(c)
	c.Finish("Two API servers that disagree")
}

// start starts the load, and all that follow Thing.
func (f *follower) start(cfg *rest.Config) *apiutil.DynamicRESTMapper {
	httpClient, err := rest.HTTPClientFor(cfg)
	f.Must(err)
	m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, httpClient, apiutil.DynamicRESTMapperOptions{RefreshInterval: chaosInterval, RequestTimeout: chaosRequest})
	f.Must(err)
	f.client, err = fresh.NewClient(cfg, client.Options{HTTPClient: httpClient, Mapper: m})
	f.Must(err)
	f.cache, err = fresh.NewCache(cfg, cache.Options{HTTPClient: httpClient, Mapper: m})
	f.Must(err)
	ctx, cancel := context.WithCancel(f.Ctx)
	var running sync.WaitGroup
	f.Cleanup(func() {
		cancel()
		running.Wait()
	})
	running.Go(func() { _ = m.Start(ctx) })
	running.Go(func() { _ = f.cache.Start(ctx) })
	running.Go(func() { f.runSteady(ctx, m) })
	f.run(ctx, &running, m, chaosUsers, 0)
	informer, err := f.cache.GetInformer(ctx, newThing(""))
	f.Must(err)
	_, err = informer.AddEventHandler(f)
	f.Must(err)
	return m
}

func newThing(name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(thing)
	o.SetName(name)
	return o
}

// move gives a server the kind with a scope, and one object of it.
func (f *follower) move(a *admin, cluster bool, name string) {
	crd := newCRD(thing.Group, thing.Kind, cluster, thing.Version)
	_ = a.crds.Delete(f.Ctx, crd.GetName(), metav1.DeleteOptions{})
	var things dynamic.ResourceInterface = a.Resource(thing.GroupVersion().WithResource("things"))
	if !cluster {
		things = a.Resource(thing.GroupVersion().WithResource("things")).Namespace("default")
	}
	var err error
	if _, ok := report.Within(f.Ctx, 2*time.Minute, func() bool {
		_, _ = a.crds.Create(f.Ctx, crd, metav1.CreateOptions{}) // the one before may not have ended, or this one is there
		_, err = things.Create(f.Ctx, newThing(name), metav1.CreateOptions{})
		return err == nil
	}); !ok {
		f.Fatalf("no %s on a server two minutes after its CRD came: %v", name, err)
	}
}

func (f *follower) get(cluster bool, name string) (*unstructured.Unstructured, error) {
	o := newThing(name)
	if !cluster {
		o.SetNamespace("default")
	}
	return o, f.client.Get(f.Ctx, client.ObjectKeyFromObject(o), o)
}

// agrees waits until mapper, client, cache and handler know the kind as it is, and one object.
func (f *follower) agrees(took times, m *apiutil.DynamicRESTMapper, cluster bool, name string) {
	u := &users{world: &world{load: f.load}, times: took, m: m}
	u.await("the client reads and writes", convergesFor, func() bool {
		o, err := f.get(cluster, name)
		return err == nil && f.client.Update(f.Ctx, o) == nil
	})
	u.await("the cache has the object", convergesFor, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(thing)
		return f.cache.List(f.Ctx, list) == nil && len(list.Items) == 1 && list.Items[0].GetName() == name
	})
	want := name
	if !cluster {
		want = "default/" + name
	}
	u.await("the handler knows the object and no other", convergesFor, func() bool {
		f.mu.Lock()
		defer f.mu.Unlock()
		return slices.Equal(f.names, []string{want})
	})
}

// OnAdd is part of a handler.
func (f *follower) OnAdd(obj any, _ bool) {
	key, _ := toolscache.MetaNamespaceKeyFunc(obj)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = append(f.names, key)
}

// OnUpdate is part of a handler.
func (f *follower) OnUpdate(_, _ any) {}

// OnDelete is part of a handler.
func (f *follower) OnDelete(obj any) {
	key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.names = slices.DeleteFunc(f.names, func(name string) bool { return name == key })
}
