// SPDX-License-Identifier: Apache-2.0

package fleet_test

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/fleet"
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

// A program that makes a client for each piece of work asks the fleet for the mapper. The server is read once.
func ExampleFleet_For() {
	mappers := fleet.New(apiutil.DynamicRESTMapperOptions{})
	server := fakeapi.New(widgets)
	for range 100 {
		mapper := must(mappers.For("uid-of-the-secret/its-resourceVersion", server.Config(), server.Client()))
		must(mapper.RESTMapping(widget, "v1"))
	}
	fmt.Println("requests:", len(server.TakeRequests()))

	// Output:
	// requests: 2
}

// A program whose clusters come and go keeps the mapper of a cluster until the cluster's context ends.
// With controller-runtime, cluster.New makes the mapper if MapperProvider is mappers.Provider(""), and
// cluster.GetRESTMapper returns it.
func ExampleFleet_Engage() {
	mappers := fleet.New(apiutil.DynamicRESTMapperOptions{})
	server := fakeapi.New(widgets)
	mapper := must(mappers.Provider("")(server.Config(), server.Client()))

	ctx, leave := context.WithCancel(context.Background())
	if err := mappers.Engage(ctx, "cluster-a", mapper); err != nil {
		panic(err)
	}
	fmt.Println("mappers:", len(mappers.Status()))

	leave()
	for len(mappers.Status()) > 0 { // it leaves a moment later
		time.Sleep(time.Millisecond)
	}
	fmt.Println("mappers:", len(mappers.Status()))

	// Output:
	// mappers: 1
	// mappers: 0
}
