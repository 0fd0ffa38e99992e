// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"context"
	"flag"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var requestsPage = flag.String("requests", "", "the file that gets the requests of an hour")

// timedWatches ends each watch after the time that its request names, as an API server does.
type timedWatches struct{ http.RoundTripper }

func (t timedWatches) RoundTrip(req *http.Request) (*http.Response, error) {
	seconds, err := strconv.Atoi(req.URL.Query().Get("timeoutSeconds"))
	if err != nil {
		return t.RoundTripper.RoundTrip(req)
	}
	ctx, cancel := context.WithTimeout(req.Context(), time.Duration(seconds)*time.Second)
	resp, err := t.RoundTripper.RoundTrip(req.WithContext(ctx))
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = timedBody{resp.Body, ctx, cancel}
	return resp, nil
}

type timedBody struct {
	io.ReadCloser
	ctx    context.Context
	cancel func()
}

func (b timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && b.ctx.Err() != nil {
		err = io.EOF
	}
	return n, err
}

func (b timedBody) Close() error {
	b.cancel()
	return b.ReadCloser.Close()
}

// operators are managers, each with what it takes for one.
func operators() map[string]func(*rest.Config, manager.Options) (manager.Manager, error) {
	withOptions := func(options apiutil.DynamicRESTMapperOptions) func(*rest.Config,
		manager.Options) (manager.Manager, error) {
		return func(cfg *rest.Config, opts manager.Options) (manager.Manager, error) {
			opts.MapperProvider = apiutil.DynamicRESTMapperProvider(options)
			mgr, err := fresh.NewManager(cfg, opts)
			if err != nil {
				return nil, err
			}
			return mgr, mgr.Add(mgr.GetRESTMapper().(manager.Runnable))
		}
	}
	return map[string]func(*rest.Config, manager.Options) (manager.Manager, error){
		"ctrl.NewManager":  ctrl.NewManager,
		"fresh.NewManager": fresh.NewManager,
		"fresh.NewManager, RefreshInterval of 10 minutes": withOptions(apiutil.DynamicRESTMapperOptions{
			RefreshInterval: 10 * time.Minute,
		}),
		"fresh.NewManager, WatchAPIs": withOptions(apiutil.DynamicRESTMapperOptions{WatchAPIs: true}),
	}
}

// watchedAPIs are what a mapper with WatchAPIs watches.
var watchedAPIs = []fakeapi.Group{
	{Name: "apiextensions.k8s.io", Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{
		{Name: "customresourcedefinitions", Singular: "customresourcedefinition", Kind: "CustomResourceDefinition"},
	}}}},
	{Name: "apiregistration.k8s.io", Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{
		{Name: "apiservices", Singular: "apiservice", Kind: "APIService"},
	}}}},
}

// hourOf runs an operator for an hour, in virtual time. It has informers for 30 kinds on a server with 100 groups, on
// which nothing changes. Every ten seconds it looks up each of the kinds without a version, reads an object of each
// from its cache, and reads one from the server. What it sends before all informers have synced is not returned.
func hourOf(t *testing.T, newManager func(*rest.Config, manager.Options) (manager.Manager,
	error)) (requests []fakeapi.Request) {
	synctest.Test(t, func(t *testing.T) {
		groups := fakeapi.Typical(101, 1, 2)
		var kinds []schema.GroupVersionKind
		for i := range groups[1:16] {
			group := &groups[1+i]
			for j := range group.Versions[0].Resources {
				resource := &group.Versions[0].Resources[j]
				resource.Objects = things(1, true)
				kinds = append(kinds, gvk{Group: group.Name, Version: group.Versions[0].Name, Kind: resource.Kind})
			}
		}
		s := fakeapi.New(append(groups, watchedAPIs...)...)
		cfg := s.Config()
		cfg.Transport = timedWatches{s.Client().Transport}
		mgr, err := newManager(cfg, manager.Options{Metrics: server.Options{BindAddress: "0"}})
		must(t, err)
		for _, kind := range kinds {
			_, err := mgr.GetCache().GetInformer(t.Context(), metadataOf(kind))
			must(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- mgr.Start(ctx) }()
		mgr.GetCache().WaitForCacheSync(ctx)
		key := client.ObjectKey{Namespace: "ns0", Name: "thing0"}
		must(t, mgr.GetAPIReader().Get(ctx, key, metadataOf(kinds[0])))
		time.Sleep(time.Second)
		s.TakeRequests()
		for began := time.Now(); time.Since(began) < time.Hour; time.Sleep(10 * time.Second) {
			for _, kind := range kinds {
				_, err := mgr.GetRESTMapper().RESTMapping(kind.GroupKind())
				must(t, err)
				must(t, mgr.GetClient().Get(ctx, key, metadataOf(kind)))
			}
			must(t, mgr.GetAPIReader().Get(ctx, key, metadataOf(kinds[0])))
		}
		requests = s.TakeRequests()
		cancel()
		must(t, <-ended)
		time.Sleep(time.Minute)
	})
	return requests
}

// An operator with fresh.NewManager sends the requests of one with ctrl.NewManager, and those with which its mapper
// stays up to date. With -requests FILE, the table of them is written.
func TestRequestsOfAnHour(t *testing.T) {
	page := `# Requests of an operator in an hour

For people who want to know what fresh.NewManager costs an API server. Written by hack/bench.sh.

The operator has informers for 30 kinds, on a server with 100 API groups on which nothing changes. Every ten seconds
it looks up each kind without a version, reads an object of each from its cache, and one from the server. The hour
begins when all informers have synced. Watches end after 5 to 10 minutes, at random, and are sent again.

| manager | discovery, with a document | discovery, 304 | lists | watches | gets |
| --- | ---: | ---: | ---: | ---: | ---: |
`
	counts := map[string]map[string]int{}
	all := operators()
	for _, name := range []string{"ctrl.NewManager", "fresh.NewManager",
		"fresh.NewManager, RefreshInterval of 10 minutes", "fresh.NewManager, WatchAPIs"} {
		count := map[string]int{}
		for _, r := range hourOf(t, all[name]) {
			what := r.Verb
			switch {
			case what == "" && r.Code == http.StatusNotModified:
				what = "304"
			case what == "":
				what = "document"
			}
			count[what]++
		}
		counts[name] = count
		page += fmt.Sprintf("| %s | %d | %d | %d | %d | %d |\n", name, count["document"], count["304"], count["list"],
			count["watch"], count["get"])
	}
	page += `
What fresh.NewManager adds are answers 304, without a body: once in 30 seconds (MaxAge) the mapper asks whether the two
discovery documents have changed.
`
	stock, ours := counts["ctrl.NewManager"], counts["fresh.NewManager"]
	if ours["list"] > stock["list"] || ours["get"] > stock["get"] || ours["watch"] > 2*stock["watch"] ||
		ours["document"] > stock["document"] {
		t.Errorf("fresh.NewManager: %v, ctrl.NewManager: %v", ours, stock)
	}
	t.Log("\n" + page)
	if *requestsPage != "" {
		must(t, os.WriteFile(*requestsPage, []byte(page), 0o644))
	}
}
