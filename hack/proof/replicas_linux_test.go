// SPDX-License-Identifier: Apache-2.0

package proof

import (
	"context"
	"fmt"
	"maps"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// follower is a client, a cache and a handler that follow a kind: Thing.
type follower struct {
	*load
	times
	client client.Client
	cache  cache.Cache

	mu   sync.Mutex
	told map[string]bool // what the handler knows, by namespace and name
}

var thing = gvk{Group: "things.example.com", Version: "v1", Kind: "Thing"}

// newThing is an object of the scope that Thing has.
func newThing(cluster bool, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetGroupVersionKind(thing)
	o.SetName(name)
	if !cluster {
		o.SetNamespace("default")
	}
	return o
}

// TestReplicas puts two real API servers behind one address, which have no etcd in common. One has a
// kind with another scope and plural than the other, for a while; then both agree. The mapper, a client and a
// cache that follow, and a handler of its must come to know what both say.
func TestReplicas(t *testing.T) {
	f := &follower{load: busy(report.Begin(t)), times: times{}, told: map[string]bool{}}
	f.steady, f.churned, f.churning = builtin, []gvk{thing}, 100
	one, other := newPlane(f.Campaign, 1).Servers[0], newPlane(f.Campaign, 1).Servers[0]
	ahead, behind := newAdmin(f.Campaign, one), newAdmin(f.Campaign, other)
	f.move(ahead, false, "thing0")
	f.move(behind, false, "thing0")
	at := newFront(f.Campaign, one)
	f.start(at.config())
	f.agrees(false, "thing0")
	for n := range *routes {
		cluster, name := n%2 == 0, fmt.Sprint("thing", n+1)
		at.lead(other)
		f.move(ahead, cluster, name)
		at.lead(one, other)
		for end := time.Now().Add(*gap); time.Now().Before(end); report.Pause(f.Ctx, 50*time.Millisecond) {
			o := newThing(cluster, name)
			if err := f.client.Get(f.Ctx, client.ObjectKeyFromObject(o), o); meta.IsNoMatchError(err) {
				f.Broken("both servers have Thing, each with another scope: %v", err)
			}
		}
		at.lead(one) // the resource versions of two etcds cannot be compared
		f.move(behind, cluster, name)
		f.agrees(cluster, name)
	}
	f.Text("%d lookups of what both serve, %d of them ended with an error.\n", f.lookups.Load(), f.errors.Load())
	f.table(f.Campaign)
	f.Finish("Two API servers that disagree")
}

// start starts the load, and all that follow Thing.
func (f *follower) start(cfg *rest.Config) {
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
	informer, err := f.cache.GetInformer(ctx, newThing(true, ""))
	f.Must(err)
	note := func(there bool) func(any) {
		return func(obj any) {
			key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(obj)
			f.mu.Lock()
			defer f.mu.Unlock()
			if delete(f.told, key); there {
				f.told[key] = true
			}
		}
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: note(true), DeleteFunc: note(false)})
	f.Must(err)
}

// move gives a server the kind with a scope, another plural than with the other, and one object of it.
// A list of all namespaces has the path of a cluster-wide one: without another plural a cache need not move.
func (f *follower) move(a *admin, cluster bool, name string) {
	plural := map[bool]string{false: "things", true: "thingies"}
	crd, o := newCRD(thing.Group, thing.Kind, cluster, thing.Version), newThing(cluster, name)
	crd.SetName(plural[cluster] + "." + thing.Group)
	f.Must(unstructured.SetNestedField(crd.Object, plural[cluster], "spec", "names", "plural"))
	things := a.Resource(thing.GroupVersion().WithResource(plural[cluster])).Namespace(o.GetNamespace()) // "" is the cluster
	_ = a.crds.Delete(f.Ctx, plural[!cluster]+"."+thing.Group, metav1.DeleteOptions{})                   // there may be none
	f.await(f.Campaign, "an API server serves the kind", 2*time.Minute, func() bool {
		_, _ = a.crds.Create(f.Ctx, crd, metav1.CreateOptions{}) // the one before may not have ended, or this one is there
		_, err := things.Create(f.Ctx, o, metav1.CreateOptions{})
		return err == nil
	})
}

// agrees waits until client, cache and handler know the kind as it is, and its only object.
func (f *follower) agrees(cluster bool, name string) {
	want := newThing(cluster, name)
	f.await(f.Campaign, "the client reads and writes", convergesFor, func() bool {
		o := want.DeepCopy()
		return f.client.Get(f.Ctx, client.ObjectKeyFromObject(o), o) == nil && f.client.Update(f.Ctx, o) == nil
	})
	f.await(f.Campaign, "the cache has the object", convergesFor, func() bool {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(thing)
		return f.cache.List(f.Ctx, list) == nil && len(list.Items) == 1 && client.ObjectKeyFromObject(&list.Items[0]) == client.ObjectKeyFromObject(want)
	})
	f.await(f.Campaign, "the handler knows the object and no other", convergesFor, func() bool {
		key, _ := toolscache.MetaNamespaceKeyFunc(want)
		f.mu.Lock()
		defer f.mu.Unlock()
		return maps.Equal(f.told, map[string]bool{key: true})
	})
}
