// SPDX-License-Identifier: Apache-2.0

package discoverycache_test

import (
	"fmt"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/discoverycache"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// must stands for the handling of errors.
func must[T any](result T, err error) T {
	if err != nil {
		panic(err)
	}
	return result
}

// What kubectl does with a short name. The cache takes the place of memory.NewMemCacheClient(client).
func Example() {
	widgets := fakeapi.Resource{
		Name: "widgets", Singular: "widget", Kind: "Widget", Namespaced: true, ShortNames: []string{"wd"},
	}
	server := fakeapi.New(fakeapi.Group{Name: "example.com", Versions: []fakeapi.Version{
		{Name: "v1", Resources: []fakeapi.Resource{widgets}},
	}})
	opts := apiutil.DynamicRESTMapperOptions{}
	mapper := must(apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), opts))
	client := must(discovery.NewDiscoveryClientForConfigAndClient(server.Config(), server.Client()))

	cache := discoverycache.New(mapper, client)
	expander := restmapper.NewShortcutExpander(mapper, cache, nil)
	fmt.Println(must(expander.KindFor(schema.GroupVersionResource{Resource: "wd"})))

	// Output:
	// example.com/v1, Kind=Widget
}
