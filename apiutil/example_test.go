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

// A controller that starts when its CustomResourceDefinition arrives, stops when
// that goes, and starts again when it is back. With controller-runtime's manager:
//
//	mgr.Add(mapper)
//	mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
//		return mapper.RunWhileServed(ctx, runController, widgets)
//	}))
func ExampleDynamicRESTMapper_RunWhileServed() {
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
	mapper := exampleMapper(server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 10 * time.Millisecond}) // 10 minutes outside of an example
	events := make(chan string)
	runController := func(ctx context.Context) error {
		events <- "the controller starts"
		<-ctx.Done() // what a controller does goes here; it ends with ctx
		events <- "the controller stops"
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan error), make(chan error)
	go func() { started <- mapper.Start(ctx) }()
	go func() { done <- mapper.RunWhileServed(ctx, runController, widget.WithVersion("v1")) }()

	for range 2 {
		server.Put(widgets) // its CustomResourceDefinition
		fmt.Println(<-events)
		server.Remove("example.com")
		fmt.Println(<-events)
	}
	cancel()
	fmt.Println("the end:", <-done, <-started)

	// Output:
	// the controller starts
	// the controller stops
	// the controller starts
	// the controller stops
	// the end: <nil> <nil>
}

// What controller-runtime's manager, cluster and client take for their mapper:
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{MapperProvider: provider})
//
// A RefreshInterval has an effect once the mapper was started. The manager does that, if it is told:
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

// The first lookup after a kind has come finds it, even in a group that was known before.
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

	server.Put(fakeGroup("example.com", fakeVersion("v1", "Widget:cluster"))) // the CRD was deleted, and came back cluster-scoped
	meta.MaybeResetRESTMapper(mapper)                                         // or mapper.Reset()
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

// A program that makes a client for each piece of work asks the fleet for the mapper. The server is read once.
func ExampleFleet_For() {
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{})
	server := fakeapi.New(widgets)
	for range 100 {
		mapper := must(fleet.For("uid-of-the-secret/its-resourceVersion", server.Config(), server.Client()))
		must(mapper.RESTMapping(widget, "v1"))
	}
	fmt.Println("requests:", len(server.TakeRequests()))

	// Output:
	// requests: 2
}

// What a program asks when it starts, to decide which controllers it has.
func ExampleDynamicRESTMapper_IsServed() {
	server := fakeapi.New(widgets)
	mapper := exampleMapper(server, apiutil.DynamicRESTMapperOptions{})
	for _, kind := range []schema.GroupKind{widget, gadget} {
		served, err := mapper.IsServed(context.Background(), kind.WithVersion("v1"))
		fmt.Println(kind.Kind, served, err)
	}
	server.SetFault(fakeapi.All(), fakeapi.Status(503, 0)) // an outage is no absence
	served, err := mapper.IsServed(context.Background(), widget.WithVersion("v1"))
	fmt.Println(widget.Kind, served, err != nil)

	// Output:
	// Widget true <nil>
	// Gadget false <nil>
	// Widget false true
}

// A kind of which only the name is known.
func ExampleDynamicRESTMapper_Served() {
	server := fakeapi.New(widgets, fakeGroup("example.org", fakeVersion("v1", "Widget:cluster")))
	all, err := exampleMapper(server, apiutil.DynamicRESTMapperOptions{}).Served(context.Background(), "widget")
	for _, kind := range all.Kinds {
		fmt.Println(kind.Mapping.GroupVersionKind, kind.Mapping.Scope.Name())
	}
	fmt.Println(err)

	// Output:
	// example.com/v1, Kind=Widget namespace
	// example.org/v1, Kind=Widget root
	// <nil>
}

// Where a kind is that was not found.
func ExampleDynamicRESTMapper_NoMatchHint() {
	mapper := exampleMapper(fakeapi.New(widgets), apiutil.DynamicRESTMapperOptions{})
	_, err := mapper.RESTMapping(widget, "v2")
	fmt.Println(err)
	fmt.Println(mapper.NoMatchHint(err))

	// Output:
	// no matches for kind "Widget" in version "example.com/v2"
	// Widget: example.com/v1
}
