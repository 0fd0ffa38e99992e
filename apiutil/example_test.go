// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var (
	widget  = schema.GroupKind{Group: "example.com", Kind: "Widget"}
	gadget  = schema.GroupKind{Group: "example.com", Kind: "Gadget"}
	widgets = fakeGroup("example.com", fakeVersion("v1", "Widget")) // as a CustomResourceDefinition makes it
)

// exampleMapper stands for apiutil.NewDynamicRESTMapperWithOptions with the rest.Config of a
// cluster, for which the server stands.
func exampleMapper(server *fakeapi.Server, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	return must(apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), opts))
}

// must stands for the handling of errors.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// What controller-runtime's manager, cluster and client take for their mapper:
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{MapperProvider: provider})
//
// A RefreshInterval has an effect once the mapper was started. The manager starts it if it is added:
//
//	err = mgr.Add(mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper))
func ExampleDynamicRESTMapperProvider() {
	provider := apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{RefreshInterval: 10 * time.Minute})
	server := fakeapi.New(widgets)
	mapper := must(provider(server.Config(), server.Client()))
	mapping := must(mapper.RESTMapping(widget))
	fmt.Println(mapping.Resource, mapping.Scope.Name())

	// Output:
	// example.com/v1, Resource=widgets namespace
}

// Look up the resource of a kind. With controller-runtime's manager the mapper is made by
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{MapperProvider: apiutil.NewDynamicRESTMapper})
//
// and mgr.GetRESTMapper returns it.
func Example() {
	server := fakeapi.New(widgets) // stands for the cluster
	mapper := must(apiutil.NewDynamicRESTMapper(server.Config(), server.Client()))
	mapping := must(mapper.RESTMapping(widget))
	fmt.Println(mapping.Resource, mapping.Scope.Name())

	// Output:
	// example.com/v1, Resource=widgets namespace
}

// The first lookup after a kind was installed finds it, even in a group that was known before.
func ExampleNewDynamicRESTMapper() {
	server := fakeapi.New(widgets) // stands for the cluster
	mapper := must(apiutil.NewDynamicRESTMapper(server.Config(), server.Client()))
	_, err := mapper.RESTMapping(gadget)
	fmt.Println("no match:", meta.IsNoMatchError(err))

	server.Put(fakeGroup("example.com", fakeVersion("v1", "Widget", "Gadget")))
	fmt.Println(must(mapper.RESTMapping(gadget)).GroupVersionKind)

	// Output:
	// no match: true
	// example.com/v1, Kind=Gadget
}

// After a Reset, a known kind is looked up on the server again. If you know which group has
// changed, mapper.Refresh(ctx, "example.com") reads that group alone.
func ExampleDynamicRESTMapper_Reset() {
	server := fakeapi.New(widgets)
	mapper := exampleMapper(server, apiutil.DynamicRESTMapperOptions{})
	fmt.Println(must(mapper.RESTMapping(widget)).Scope.Name())

	// the CRD was deleted, and came back cluster-scoped
	server.Put(fakeGroup("example.com", fakeVersion("v1", "Widget:cluster")))
	meta.MaybeResetRESTMapper(mapper) // or mapper.Reset()
	fmt.Println(must(mapper.RESTMapping(widget)).Scope.Name())

	// Output:
	// namespace
	// root
}

// Reset mappers if an error means that discovery is stale, and only then.
func ExampleResetOnNoMatch() {
	server := fakeapi.New(widgets)
	mapper := exampleMapper(server, apiutil.DynamicRESTMapperOptions{})
	_, err := mapper.RESTMapping(gadget)
	fmt.Println(apiutil.ResetOnNoMatch(err, mapper))
	fmt.Println(apiutil.ResetOnNoMatch(context.DeadlineExceeded, mapper))

	// Output:
	// true
	// false
}

// Receive everything that is served, then each change.
func ExampleDynamicRESTMapper_Subscribe() {
	server := fakeapi.New(widgets)
	mapper := exampleMapper(server, apiutil.DynamicRESTMapperOptions{})
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	changes := mapper.Subscribe(ctx)
	show := func() {
		for _, change := range <-changes {
			fmt.Println(change.Type, change.Mapping.GroupVersionKind.Kind)
		}
	}
	show()

	server.Put(fakeGroup("example.com", fakeVersion("v1", "Gadget")))
	must(mapper.RESTMapping(gadget)) // with RefreshInterval or WatchAPIs nobody has to ask
	show()

	// Output:
	// Added Widget
	// Removed Widget
	// Added Gadget
}
