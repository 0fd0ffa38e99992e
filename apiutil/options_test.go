// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Whatever the options, a constructor sends no request and leaves no goroutine.
func TestConstructorsDoNothing(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := newServer(fakeapi.Aggregated())
	cfg, client := server.Config(), server.Client()
	all := apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Millisecond, WatchAPIs: true, NegativeTTL: time.Hour, UnhealthyAfter: time.Nanosecond}
	for range 20 {
		for _, m := range []meta.RESTMapper{
			must(apiutil.NewDynamicRESTMapper(cfg, client)), must(apiutil.DynamicRESTMapperProvider(all)(cfg, client)),
			must(apiutil.NewDynamicRESTMapperWithOptions(cfg, client, all)),
		} {
			meta.MaybeResetRESTMapper(m)
		}
	}
	wantRequests(t, server, "constructors, and resets")
}

func TestArgumentsThatCannotBe(t *testing.T) {
	const secret = "password-in-the-url"
	cfg, client := &rest.Config{Host: "http://fake.invalid"}, &http.Client{}
	type options = apiutil.DynamicRESTMapperOptions
	for name, test := range map[string]struct {
		cfg    *rest.Config
		client *http.Client
		opts   options
		want   string
	}{
		"no config":                  {nil, client, options{}, "cfg is nil"},
		"no client":                  {cfg, nil, options{}, "httpClient is nil"},
		"host":                       {&rest.Config{Host: "http://user:" + secret + "@[fake.invalid"}, client, options{}, "rest.Config"},
		"RefreshInterval":            {cfg, client, options{RefreshInterval: -1}, "RefreshInterval"},
		"NegativeTTL":                {cfg, client, options{NegativeTTL: -1}, "NegativeTTL"},
		"RequestTimeout":             {cfg, client, options{RequestTimeout: -1}, "RequestTimeout"},
		"MaxResponseBytes":           {cfg, client, options{MaxResponseBytes: -1}, "MaxResponseBytes"},
		"UnhealthyAfter":             {cfg, client, options{UnhealthyAfter: -1}, "UnhealthyAfter"},
		"no unit of RefreshInterval": {cfg, client, options{RefreshInterval: 30}, "RefreshInterval is 30ns, less than 1ms: give it with its unit"},
		"no unit of MaxAge":          {cfg, client, options{MaxAge: 30}, "MaxAge is 30ns"},
		"no unit of RequestTimeout":  {cfg, client, options{RequestTimeout: 30}, "RequestTimeout is 30ns"},
	} {
		m, err := apiutil.NewDynamicRESTMapperWithOptions(test.cfg, test.client, test.opts)
		byProvider, providers := apiutil.DynamicRESTMapperProvider(test.opts)(test.cfg, test.client)
		byFleet, fleets := apiutil.NewFleet(test.opts).Provider("a")(test.cfg, test.client)
		if m != nil || byProvider != nil || byFleet != nil {
			t.Errorf("%s: a mapper that is not nil beside the error: %v, %v, %v", name, m, byProvider, byFleet)
		}
		for _, err := range []error{err, providers, fleets} {
			if err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret) {
				t.Errorf("%s: %v; want an error with %q, and without the password %s", name, err, test.want, secret)
			}
		}
	}
}

// The caller may change its arguments and its results: neither affects the mapper.
func TestArgumentsAndAnswersBelongToTheCaller(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup("example.com", fakeVersion("v1", "Foo"), fakeVersion("v2", "Foo")))
	cfg, client := server.Config(), server.Client()
	m := must(apiutil.NewDynamicRESTMapper(cfg, client))
	if client.CheckRedirect != nil {
		t.Error("the caller's client was changed")
	}
	*cfg, *client = rest.Config{Host: "http://elsewhere.invalid"}, http.Client{}
	all := schema.GroupVersionResource{Group: "example.com", Resource: "foos"}
	for range 2 {
		versions := []string{"v1", "v2"}
		mappings, _ := m.RESTMappings(schema.GroupKind{Group: "example.com", Kind: "Foo"}, versions...)
		kinds, _ := m.KindsFor(all)
		resources, _ := m.ResourcesFor(all)
		if len(mappings) != 2 || len(kinds) != 2 || len(resources) != 2 ||
			mappings[0].Resource.Resource != "foos" || kinds[0].Kind != "Foo" || resources[0].Resource != "foos" {
			t.Fatalf("%v, %v, %v; want Foo and foos in two versions", mappings, kinds, resources)
		}
		versions[0], *mappings[0], mappings[1] = "v9", meta.RESTMapping{}, nil
		kinds[0].Kind, resources[0].Resource = "Bar", "bars"
	}
	for _, r := range server.TakeRequests() {
		if r.Host != "fake.invalid" {
			t.Errorf("%s went to %s; want the host that cfg had when the mapper was made", r, r.Host)
		}
	}
}

func TestStartRunsOnlyOnce(t *testing.T) {
	for _, opts := range []apiutil.DynamicRESTMapperOptions{{}, {RefreshInterval: time.Minute}} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, opts)
			stop := startMapper(t, m)
			synctest.Wait()
			if err := m.Start(context.Background()); err == nil || m.NeedLeaderElection() {
				t.Errorf("Start while the mapper runs: %v, leader election %t; want an error, and none", err, m.NeedLeaderElection())
			}
			stop()
			if err := m.Start(context.Background()); err == nil {
				t.Error("Start after the mapper has run: want an error")
			}
			ended, end := context.WithCancel(context.Background())
			end()
			server.TakeRequests()
			if err := newMapper(t, server, opts).Start(ended); err != nil {
				t.Errorf("Start with a context that has ended: %v", err)
			}
			wantRequests(t, server, "with a context that has ended")
		})
	}
}

// Start cancels its read however its context ends, and that is no failure of the server.
func TestStartUntilADeadline(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		err := m.Start(ctx)
		time.Sleep(time.Minute)
		if status := m.Status(); err != nil || status.ConsecutiveFailures > 0 {
			t.Errorf("Start until a deadline, before the server has answered: %v, %+v; want no error, and no failure", err, status)
		}
	})
}

// Hits all the time, from many goroutines, wait for nothing and refresh once each MaxAge, which is
// 30 seconds without an option.
func TestBusyMapperRefreshesOnceEachMaxAge(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		const ages, maxAge = 10, 30 * time.Second
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLatency(latency)
		server.TakeRequests()
		for start := time.Now(); time.Since(start) < ages*maxAge; time.Sleep(maxAge / 100) {
			if took := allAtOnce(8, func(int) { wantServed(t, m, fooKind) }); took > 0 {
				t.Errorf("8 hits at once took %v; want none to wait", took)
			}
		}
		refreshes := 0
		for _, r := range server.TakeRequests() {
			if r.Path == "/apis" {
				refreshes++
			}
		}
		if refreshes < ages-2 || refreshes > ages+1 {
			t.Errorf("%d refreshes in %d times MaxAge; want one for each", refreshes, ages)
		}
	})
}
