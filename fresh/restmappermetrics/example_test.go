// SPDX-License-Identifier: Apache-2.0

package restmappermetrics_test

import (
	"fmt"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh/restmappermetrics"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A program that makes its mapper itself counts what that does. With controller-runtime the registry is
// metrics.Registry of sigs.k8s.io/controller-runtime/pkg/metrics, whose endpoint the manager serves.
func Example() {
	registry := prometheus.NewRegistry()
	recorder, err := restmappermetrics.New(registry)
	if err != nil {
		panic(err)
	}
	server := fakeapi.New(fakeapi.Group{Name: "example.com",
		Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{
			{Name: "widgets", Singular: "widget", Kind: "Widget", Namespaced: true},
		}}}}) // stands for the cluster
	mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(),
		apiutil.DynamicRESTMapperOptions{Metrics: recorder})
	if err != nil {
		panic(err)
	}
	if _, err := mapper.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Widget"}); err != nil {
		panic(err)
	}

	families, err := registry.Gather()
	if err != nil {
		panic(err)
	}
	for _, family := range families {
		if strings.HasSuffix(family.GetName(), "_misses_total") {
			fmt.Println(family.GetName(), family.GetMetric()[0].GetCounter().GetValue())
		}
	}

	// Output:
	// controller_runtime_restmapper_misses_total 1
}
