// SPDX-License-Identifier: Apache-2.0

//go:build linux

package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/control"
)

// Of two API servers over one etcd only the first serves policy/v1, as in an upgrade. The
// second lists it in its document and answers 404 at its path (KEP-4020). A mapper on the
// second serves its kinds, whatever is looked up besides.
func TestVersionThatOnlyAPeerServes(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can give API servers machine names of their own")
	}
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	assets, err := control.Assets()
	must(t, err)
	plane, err := control.StartPeers(ctx, assets, "", "policy/v1=false")
	must(t, err)
	t.Cleanup(func() { must(t, plane.Stop()) })

	cfg := plane.Servers[1].Config()
	client, err := rest.HTTPClientFor(cfg)
	must(t, err)
	budget, absent := schema.GroupKind{Group: "policy", Kind: "PodDisruptionBudget"}, schema.GroupKind{Group: "policy", Kind: "Absent"}
	newMapper := func() *apiutil.DynamicRESTMapper {
		m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{})
		must(t, err)
		return m
	}
	// A peer's document is read every 30 seconds or so.
	must(t, wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		_, err := newMapper().RESTMappingWithContext(ctx, budget)
		return err == nil, nil //nolint:nilerr // It goes on until ctx ends.
	}))

	m := newMapper()
	served := func(when string) {
		t.Helper()
		for _, versions := range [][]string{nil, {"v1"}} {
			if _, err := m.RESTMapping(budget, versions...); err != nil {
				t.Errorf("%s, versions %q: %v", when, versions, err)
			}
		}
	}
	served("cold")
	for _, versions := range [][]string{{"v1"}, nil} {
		if _, err := m.RESTMapping(absent, versions...); !meta.IsNoMatchError(err) {
			t.Errorf("a kind that is absent, versions %q: %v", versions, err)
		}
		served("after a miss")
	}
	m.Reset()
	served("after Reset")
	m.ResetGroup(budget.Group)
	served("after ResetGroup")
	must(t, m.Refresh(ctx))
	served("after Refresh")

	mapping, err := m.RESTMapping(budget)
	must(t, err)
	objects, err := dynamic.NewForConfig(cfg)
	must(t, err)
	_, err = objects.Resource(mapping.Resource).Namespace("default").List(ctx, metav1.ListOptions{})
	must(t, err)
}
