// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
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

// What cannot be is refused, whoever makes the mapper. A host that is no URL is named without its user and
// password.
func TestArgumentsThatCannotBe(t *testing.T) {
	cfg, client := &rest.Config{Host: "http://fake.invalid"}, &http.Client{}
	type options = apiutil.DynamicRESTMapperOptions
	type arguments struct {
		cfg    *rest.Config
		client *http.Client
		opts   options
		want   string
	}
	rows := []arguments{
		{nil, client, options{}, "cfg is nil"},
		{cfg, nil, options{}, "httpClient is nil"},
		{cfg, client, options{RefreshInterval: -1}, "RefreshInterval"},
		{cfg, client, options{NegativeTTL: -1}, "NegativeTTL"},
		{cfg, client, options{RequestTimeout: -1}, "RequestTimeout"},
		{cfg, client, options{MaxResponseBytes: -1}, "MaxResponseBytes"},
		{cfg, client, options{UnhealthyAfter: -1}, "UnhealthyAfter"},
		{cfg, client, options{RefreshInterval: 30}, "RefreshInterval is 30ns, less than 1ms: give it with its unit"},
		{cfg, client, options{MaxAge: 30}, "MaxAge is 30ns"},
		{cfg, client, options{RequestTimeout: 30}, "RequestTimeout is 30ns"},
	}
	for _, host := range []string{
		"http://admin:secret@[host", "https://admin:my secret@host", "https://admin:se/secret@host%zz", "admin:secret@host:443/path",
		"https://admin:secret%zz@host", "https://admin:secret@host:port", "//admin:secret@host/path", "//admin:se/secret@host", "admin:secret@host%zz",
	} {
		rows = append(rows, arguments{&rest.Config{Host: host}, client, options{}, "host"}, arguments{&rest.Config{Host: host}, client, options{WatchAPIs: true}, "host"})
	}
	for _, row := range rows {
		m, err := apiutil.NewDynamicRESTMapperWithOptions(row.cfg, row.client, row.opts)
		byProvider, providers := apiutil.DynamicRESTMapperProvider(row.opts)(row.cfg, row.client)
		byFleet, fleets := apiutil.NewFleet(row.opts).Provider("a")(row.cfg, row.client)
		if m != nil || byProvider != nil || byFleet != nil {
			t.Errorf("%s: a mapper that is not nil beside the error: %v, %v, %v", row.want, m, byProvider, byFleet)
		}
		for _, err := range []error{err, providers, fleets} {
			shows := func(part string) bool { return strings.Contains(fmt.Sprint(err), part) }
			if err == nil || !shows(row.want) || slices.ContainsFunc([]string{"admin", "my ", "secret", ":se", "zz@"}, shows) {
				t.Errorf("cfg %v, options %+v: %v; want an error with %q, and no user or password", row.cfg, row.opts, err, row.want)
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
		best, _ := m.ResourceFor(all)
		if len(mappings) != 2 || len(kinds) != 2 || len(resources) != 2 ||
			mappings[0].Resource.Resource != "foos" || kinds[0].Kind != "Foo" || resources[0].Resource != "foos" || best != resources[0] {
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
