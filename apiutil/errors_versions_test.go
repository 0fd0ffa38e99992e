// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"errors"
	"io"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Three groups: one that an aggregated API server serves, which can be down; one
// with two versions; and the core group, which has nothing to do with either.
var (
	metric = schema.GroupVersionKind{Group: "metrics.example.com", Version: "v1beta1", Kind: "Metric"}
	inV1   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Old"}
	inV2   = schema.GroupVersionKind{Group: "example.com", Version: "v2", Kind: "Young"}
	pod    = schema.GroupVersionKind{Version: "v1", Kind: "Pod"}
)

func serverWithAPIService(forms fakeapi.Forms) *fakeapi.Server {
	server := fakeapi.New(
		fakeGroup("", fakeVersion("v1", "Pod")),
		fakeGroup("metrics.example.com", fakeVersion("v1beta1", "Metric")),
		fakeGroup("example.com", fakeVersion("v1", "Old"), fakeVersion("v2", "Young")),
	)
	server.SetForms(forms)
	return server
}

// breakVersion makes a version fail: as an APIService that is down, or as a 503
// at its path alone, of which the aggregated document does not know.
func breakVersion(server *fakeapi.Server, how string, gv schema.GroupVersion, kinds ...string) (heal func()) {
	if how == "503" {
		return server.SetFault(fakeapi.At("/apis/"+gv.String()), fakeapi.Status(503, 0))
	}
	v := fakeVersion(gv.Version, kinds...)
	v.Stale = true
	if how == "stale and empty" {
		v.Resources = nil
	}
	server.PutVersion(gv.Group, v)
	return func() { server.PutVersion(gv.Group, fakeVersion(gv.Version, kinds...)) }
}

// An APIService is down when the mapper first asks. Its kinds are not "no match",
// all others are served, and it is found at the first lookup after it recovers.
func TestAPIServiceDownAtFirst(t *testing.T) {
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		for _, how := range []string{"stale", "stale and empty"} {
			for i, form := range lookupForms(metric) {
				server := serverWithAPIService(forms)
				repair := breakVersion(server, how, metric.GroupVersion(), "Metric")
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				for range 2 {
					answer, err := form.ask(context.Background(), m)
					wantFailed(t, metric.GroupVersion(), form.name, answer, err)
					lookupForms(pod)[i].wantAnswer(t, m, "beside an APIService that is down")
					lookupForms(inV2)[i].wantAnswer(t, m, "beside an APIService that is down")
				}
				repair()
				form.wantAnswer(t, m, "recovered")
				server.TakeRequests()
				form.wantAnswer(t, m, "recovered")
				if requests := server.TakeRequests(); len(requests) > 0 {
					t.Errorf("%s: what has recovered is asked for again: %v", form.name, requests)
				}
			}
		}
	})
}

// wantFailed fails the test unless err says of gv that it could not be read.
func wantFailed(t *testing.T, gv schema.GroupVersion, lookup, answer string, err error) {
	t.Helper()
	var failed *apiutil.ErrResourceDiscoveryFailed
	if err == nil || meta.IsNoMatchError(err) || !errors.As(err, &failed) || (*failed)[gv] == nil {
		t.Errorf("%s: %q, %v; want ErrResourceDiscoveryFailed for %s", lookup, answer, err, gv)
	}
}

// An APIService goes down later. What it served last is still served, also after a Reset,
// and a lookup that finds nothing in it is not "no match".
func TestAPIServiceDownLater(t *testing.T) {
	absent := schema.GroupVersionKind{Group: metric.Group, Version: metric.Version, Kind: "Absent"}
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		for _, how := range []string{"stale", "stale and empty"} {
			server := serverWithAPIService(forms)
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			lookupForms(metric)[0].wantAnswer(t, m, "while it is up")
			repair := breakVersion(server, how, metric.GroupVersion(), "Metric")
			for _, when := range []string{"down", "down, after a Reset"} {
				for i, form := range lookupForms(metric) {
					missing := lookupForms(absent)[i]
					answer, err := missing.ask(context.Background(), m)
					wantFailed(t, metric.GroupVersion(), missing.name, answer, err)
					form.wantAnswer(t, m, when)
				}
				m.Reset()
			}
			repair()
			server.PutVersion(metric.Group, fakeVersion(metric.Version, "Absent"))
			lookupForms(absent)[1].wantAnswer(t, m, "recovered")
			for _, form := range lookupForms(metric) {
				if answer, err := form.ask(context.Background(), m); !meta.IsNoMatchError(err) {
					t.Errorf("%s, recovered without it: %q, %v", form.name, answer, err)
				}
			}
		}
	})
}

// One version of a group fails, and the other is fine: lookups in both are still
// answered.
func TestOneVersionFails(t *testing.T) {
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		for _, how := range []string{"503", "stale", "stale and empty"} {
			for i := range lookupForms(inV1) {
				server := serverWithAPIService(forms)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				lookupForms(inV1)[0].wantAnswer(t, m, "warming up")
				heal := breakVersion(server, how, inV1.GroupVersion(), "Old")
				server.PutVersion("example.com", fakeVersion("v2", "Young", "Newer"))
				for _, gvk := range []schema.GroupVersionKind{inV1, inV2, {Group: "example.com", Version: "v2", Kind: "Newer"}, inV1, inV2, pod} {
					lookupForms(gvk)[i].wantAnswer(t, m, how)
				}
				m.Reset()
				for _, gvk := range []schema.GroupVersionKind{inV1, inV2, pod} {
					lookupForms(gvk)[i].wantAnswer(t, m, how+", after a Reset")
				}
				heal()
				lookupForms(inV1)[i].wantAnswer(t, m, "healed")
			}
		}
	})
}

// A version that stays dead costs nothing to lookups of something else.
func TestDeadVersionCostsOthersNothing(t *testing.T) {
	eachMode(t, allModes, func(t *testing.T, forms fakeapi.Forms) {
		for _, how := range []string{"503", "stale"} {
			server := serverWithAPIService(forms)
			breakVersion(server, how, metric.GroupVersion(), "Metric")
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			lookupForms(pod)[0].wantAnswer(t, m, "warming up")
			server.TakeRequests()
			for _, gvk := range []schema.GroupVersionKind{pod, inV1, inV2} {
				for _, form := range lookupForms(gvk) {
					form.wantAnswer(t, m, "beside a dead version")
					if requests := server.TakeRequests(); len(requests) > 0 {
						t.Errorf("%s of %s, %s: %v", form.name, gvk.Kind, how, requests)
					}
				}
			}
		}
	})
}

// The causes that a caller may want to tell apart can be told apart.
func TestCauses(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
	for _, test := range []struct {
		fault   fakeapi.Fault
		timeout time.Duration
		is      error
	}{
		{fakeapi.Refused(), time.Minute, syscall.ECONNREFUSED},
		{fakeapi.ResetMidBody(), time.Minute, syscall.ECONNRESET},
		{fakeapi.Timeout(), time.Millisecond, context.DeadlineExceeded},
		{fakeapi.Truncated(), time.Minute, io.ErrUnexpectedEOF},
	} {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RequestTimeout: test.timeout})
		server.ClearFaults()
		server.SetFault(fakeapi.All(), test.fault)
		if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1"); !errors.Is(err, test.is) {
			t.Errorf("%s: %v is not %v", test.fault, err, test.is)
		}
	}
}
