// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"net/http"
	"strings"
	"testing"
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
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
	cfg, client := server.Config(), server.Client()
	others := goleak.IgnoreCurrent()
	all := apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Millisecond, WatchAPIs: true, NegativeTTL: time.Hour, UnhealthyAfter: time.Nanosecond}
	for range 20 {
		for _, m := range []meta.RESTMapper{
			must(apiutil.NewDynamicRESTMapper(cfg, client)), must(apiutil.DynamicRESTMapperProvider(all)(cfg, client)),
			must(apiutil.NewDynamicRESTMapperWithOptions(cfg, client, all)),
		} {
			meta.MaybeResetRESTMapper(m)
		}
	}
	goleak.VerifyNone(t, others)
	if requests := server.TakeRequests(); len(requests) > 0 {
		t.Errorf("requests: %v", requests)
	}
}

func TestArgumentsThatCannotBe(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
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
		"neither":                    {nil, nil, options{}, "nil"},
		"host":                       {&rest.Config{Host: "http://user:" + secret + "@[fake.invalid"}, client, options{}, "rest.Config"},
		"RefreshInterval":            {cfg, client, options{RefreshInterval: -1}, "RefreshInterval"},
		"NegativeTTL":                {cfg, client, options{NegativeTTL: -1}, "NegativeTTL"},
		"RequestTimeout":             {cfg, client, options{RequestTimeout: -1}, "RequestTimeout"},
		"MaxResponseBytes":           {cfg, client, options{MaxResponseBytes: -1}, "MaxResponseBytes"},
		"no unit of RefreshInterval": {cfg, client, options{RefreshInterval: 30}, "RefreshInterval is 30ns, less than 1ms: give it with its unit"},
		"no unit of MaxAge":          {cfg, client, options{MaxAge: 30}, "MaxAge is 30ns"},
		"no unit of RequestTimeout":  {cfg, client, options{RequestTimeout: 30}, "RequestTimeout is 30ns"},
		"UnhealthyAfter":             {cfg, client, options{UnhealthyAfter: -1}, "UnhealthyAfter"},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := apiutil.NewDynamicRESTMapperWithOptions(test.cfg, test.client, test.opts)
			wantRefusal(t, m == nil, err, test.want, secret)
			mapper, err := apiutil.DynamicRESTMapperProvider(test.opts)(test.cfg, test.client)
			wantRefusal(t, mapper == nil, err, test.want, secret)
			mapper, err = apiutil.NewFleet(test.opts).Provider("a")(test.cfg, test.client)
			wantRefusal(t, mapper == nil, err, test.want, secret)
			if test.opts == (apiutil.DynamicRESTMapperOptions{}) {
				mapper, err := apiutil.NewDynamicRESTMapper(test.cfg, test.client)
				wantRefusal(t, mapper == nil, err, test.want, secret)
			}
		})
	}
}

func wantRefusal(t *testing.T, none bool, err error, want, secret string) {
	t.Helper()
	switch {
	case err == nil || !strings.Contains(err.Error(), want):
		t.Errorf("got %v, want something of %q", err, want)
	case strings.Contains(err.Error(), secret):
		t.Errorf("the password is in: %v", err)
	case !none:
		t.Errorf("a mapper that is not nil beside the error")
	}
}

// The caller may change its arguments and its results: neither affects the mapper.
func TestArgumentsAndAnswersBelongToTheCaller(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup("example.com", fakeVersion("v1", "Foo"), fakeVersion("v2", "Foo")))
	cfg, client := server.Config(), server.Client()
	m, err := apiutil.NewDynamicRESTMapper(cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	transport := client.Transport
	*cfg, *client = rest.Config{Host: "http://elsewhere.invalid"}, http.Client{}
	all := schema.GroupVersionResource{Group: "example.com", Resource: "foos"}
	for range 2 {
		versions := []string{"v1", "v2"}
		mappings, _ := m.RESTMappings(schema.GroupKind{Group: "example.com", Kind: "Foo"}, versions...)
		kinds, _ := m.KindsFor(all)
		resources, _ := m.ResourcesFor(all)
		if len(mappings) != 2 || len(kinds) != 2 || len(resources) != 2 ||
			mappings[0].Resource.Resource != "foos" || kinds[0].Kind != "Foo" || resources[0].Resource != "foos" {
			t.Fatalf("%v, %v, %v", mappings, kinds, resources)
		}
		versions[0], *mappings[0], mappings[1] = "v9", meta.RESTMapping{}, nil
		kinds[0].Kind, resources[0].Resource = "Bar", "bars"
	}
	for _, r := range server.TakeRequests() {
		if r.Host != "fake.invalid" {
			t.Errorf("%s went to %s", r, r.Host)
		}
	}
	if client.Transport != nil || transport == nil {
		t.Error("the caller's client was changed")
	}
}
