// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A controller that starts when its CustomResourceDefinition arrives, stops when
// that goes, and starts again when it is back. With controller-runtime's manager:
//
//	mgr.Add(mapper)
//	mgr.Add(manager.RunnableFunc(func(ctx context.Context) error {
//		return mapper.RunWhileServed(ctx, runController, widgets)
//	}))
func ExampleDynamicRESTMapper_RunWhileServed() {
	widgets := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
	crd := fakeapi.Group{Name: "example.com", Versions: []fakeapi.Version{{
		Name: "v1", Resources: []fakeapi.Resource{{Name: "widgets", Kind: "Widget", Namespaced: true}},
	}}}
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...) // stands for the cluster

	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), apiutil.DynamicRESTMapperOptions{
		RefreshInterval: 10 * time.Millisecond, // a minute outside of an example
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	events := make(chan string)
	runController := func(ctx context.Context) error {
		events <- "the controller starts"
		<-ctx.Done() // what a controller does goes here; it ends with ctx
		events <- "the controller stops"
		return nil
	}

	ctx, cancel := context.WithCancel(context.Background())
	started, done := make(chan error, 1), make(chan error, 1)
	go func() { started <- mapper.Start(ctx) }()
	go func() { done <- mapper.RunWhileServed(ctx, runController, widgets) }()

	for range 2 {
		server.Put(crd)
		fmt.Println(<-events)
		server.Remove(crd.Name)
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
// A RefreshInterval has an effect once the mapper was started. The manager does
// that, if it is told:
//
//	err = mgr.Add(mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper))
func ExampleDynamicRESTMapperProvider() {
	provider := apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{
		RefreshInterval: 10 * time.Minute,
		NegativeTTL:     time.Second,
	})

	server := fakeapi.New(fakeapi.Typical(1, 2, 1)...) // stands for the cluster
	mapper, err := provider(server.Config(), server.Client())
	if err != nil {
		fmt.Println(err)
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { _ = mapper.(*apiutil.DynamicRESTMapper).Start(ctx) }() // in the place of the manager

	mapping, err := mapper.RESTMapping(schema.GroupKind{Group: "g0001.example.com", Kind: "Kind0001A"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(mapping.Resource, mapping.Scope.Name())

	// Output:
	// g0001.example.com/v2, Resource=kind0001as namespace
}

// Start a controller once its CustomResourceDefinition has arrived.
func ExampleDynamicRESTMapper_WaitForKinds() {
	server := fakeapi.New(fakeapi.Typical(1, 1, 1)...) // stands for the cluster
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), apiutil.DynamicRESTMapperOptions{})
	if err != nil {
		fmt.Println(err)
		return
	}
	kind := schema.GroupVersionKind{Group: "g0001.example.com", Version: "v1", Kind: "Kind0001A"}
	if err := mapper.WaitForKinds(context.Background(), kind); err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("the controller starts")

	// Output:
	// the controller starts
}
