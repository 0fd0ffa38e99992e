// SPDX-License-Identifier: Apache-2.0

package served_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var (
	widget  = schema.GroupKind{Group: "example.com", Kind: "Widget"}
	widgets = serving("example.com", "Widget") // as a CustomResourceDefinition makes it
)

// serving returns a group that serves a kind in its version v1.
func serving(group, kind string) fakeapi.Group {
	name := strings.ToLower(kind)
	resource := fakeapi.Resource{Name: name + "s", Singular: name, Kind: kind, Namespaced: true}
	return fakeapi.Group{Name: group, Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{resource}}}}
}

// must stands for the handling of errors.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// mapperOf stands for apiutil.NewDynamicRESTMapperWithOptions with the rest.Config of a cluster, for which the
// server stands, or for mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper).
func mapperOf(server *fakeapi.Server, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	return must(apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), opts))
}

// What a program asks when it starts, to decide which controllers it has.
func ExampleIs() {
	server := fakeapi.New(widgets)
	mapper := mapperOf(server, apiutil.DynamicRESTMapperOptions{})
	for _, kind := range []schema.GroupKind{widget, {Group: "example.com", Kind: "Gadget"}} {
		is, err := served.Is(context.Background(), mapper, kind.WithVersion("v1"))
		fmt.Println(kind.Kind, is, err)
	}
	server.SetFault(fakeapi.All(), fakeapi.Status(503, 0)) // an outage is no absence
	is, err := served.Is(context.Background(), mapper, widget.WithVersion("v1"))
	fmt.Println(widget.Kind, is, err != nil)

	// Output:
	// Widget true <nil>
	// Gadget false <nil>
	// Widget false true
}

// A kind of which only the name is known.
func ExampleList() {
	server := fakeapi.New(widgets, serving("example.org", "Widget"))
	mapper := mapperOf(server, apiutil.DynamicRESTMapperOptions{})
	all, err := served.List(context.Background(), mapper, "widget")
	for _, kind := range all.Kinds {
		fmt.Println(kind.Mapping.GroupVersionKind, kind.Mapping.Scope.Name())
	}
	fmt.Println(err)

	// Output:
	// example.com/v1, Kind=Widget namespace
	// example.org/v1, Kind=Widget namespace
	// <nil>
}

// A list that must not be as old as MaxAge.
func ExampleList_now() {
	ctx, server := context.Background(), fakeapi.New(widgets)
	mapper := mapperOf(server, apiutil.DynamicRESTMapperOptions{})
	all := must(served.List(ctx, mapper))
	fmt.Println(len(all.Kinds))

	server.Put(serving("example.org", "Gadget"))
	if err := mapper.Refresh(ctx); err != nil { // the server cannot be read
		panic(err)
	}
	all = must(served.List(ctx, mapper))
	fmt.Println(len(all.Kinds))

	// Output:
	// 1
	// 2
}

// Wait until a CustomResourceDefinition is installed, at most for a minute.
func ExampleWait() {
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
	mapper := mapperOf(server, apiutil.DynamicRESTMapperOptions{})
	time.AfterFunc(10*time.Millisecond, func() { server.Put(widgets) }) // somebody installs it

	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	fmt.Println(served.Wait(ctx, mapper, widget.WithVersion("v1")))

	// Output:
	// <nil>
}

// A controller that starts when its CustomResourceDefinition is installed, stops when that is
// deleted, and starts again when it is installed again. With controller-runtime's manager:
//
//	mgr.Add(mapper)
//	mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
//		return served.RunWhile(ctx, mapper, runController, widgets)
//	}))
func ExampleRunWhile() {
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...)
	// 10 minutes outside of an example
	mapper := mapperOf(server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 10 * time.Millisecond})
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
	go func() { done <- served.RunWhile(ctx, mapper, runController, widget.WithVersion("v1")) }()

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

// Where a kind is that was not found.
func ExampleHint() {
	mapper := mapperOf(fakeapi.New(widgets), apiutil.DynamicRESTMapperOptions{})
	_, err := mapper.RESTMapping(widget, "v2")
	fmt.Println(err)
	fmt.Println(served.Hint(mapper, err))

	// Output:
	// no matches for kind "Widget" in version "example.com/v2"
	// Widget: example.com/v1
}
