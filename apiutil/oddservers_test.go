// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The path says of which version a list is (R1). Extension servers answer at each version of their
// group with a list that names one of them (kubevirt#10899).
func TestListThatClaimsAnotherVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		claiming := func(version string) fakeapi.Version {
			v := fakeVersion(version, "Thing")
			v.Claims = "claims.example.com/v1alpha3"
			return v
		}
		server.Put(fakeGroup("claims.example.com", claiming("v1"), claiming("v1alpha3")))
		thing := schema.GroupVersionKind{Group: "claims.example.com", Version: "v1", Kind: "Thing"}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		for _, when := range []string{"at first", "known", "after a reset", "after a reset of the group"} {
			switch when {
			case "after a reset":
				m.Reset()
			case "after a reset of the group":
				m.ResetGroup(thing.Group)
			}
			for _, form := range lookupForms(thing) {
				if form.what != "kinds" && form.what != "kinds-of" && form.what != "resources" || form.version != "" { // both versions have it
					form.wantAnswer(t, m, when)
				}
			}
			wantServed(t, m, schema.GroupVersionKind{Group: "claims.example.com", Version: "v1alpha3", Kind: "Thing"})
			if _, err := m.ResourceFor(schema.GroupVersionResource{Resource: "absents"}); !meta.IsNoMatchError(err) {
				t.Errorf("%s, what no group serves: %v; want NoMatch", when, err)
			}
		}
		if failed := m.Status().FailedGroupVersions; len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
		if err := m.Refresh(context.Background(), thing.Group); err != nil {
			t.Errorf("a refresh of the group: %v", err)
		}
	})
}

// A list of another group is an error, whatever path it comes from.
func TestListThatClaimsAnotherGroup(t *testing.T) {
	for _, claim := range []string{"other.example.com/v1", "v1", "example.com/v1/v1"} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			claiming := fakeVersion("v1", "Foo")
			claiming.Claims = claim
			server.Put(fakeGroup("example.com", claiming))
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
			readAll(t, m)
			absent := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Absent"}
			if err := lookUp(m, absent); err == nil || meta.IsNoMatchError(err) {
				t.Errorf("%s: %v; want an error that is not NoMatch", claim, err)
			}
		})
	}
}

// A server may have the core group alone, and an empty list of others is then no error. Nor is
// an empty list of core versions, if there are others.
func TestServerWithOneHalfOnly(t *testing.T) {
	for _, half := range []struct{ empty, named string }{{"/apis", ""}, {"/api", "example.com"}} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			server.SetGroups(fakeGroup(half.named, fakeVersion("v1", "Foo")))
			server.SetFault(fakeapi.At(half.empty), fakeapi.EmptyGroupList())
			foo := schema.GroupVersionKind{Group: half.named, Version: "v1", Kind: "Foo"}
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			if err := m.Refresh(context.Background()); err != nil {
				t.Errorf("Refresh: %v", err)
			}
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			if told := <-m.Subscribe(ctx); len(told) != 1 || told[0].Mapping.GroupVersionKind != foo {
				t.Errorf("Subscribe tells of %v", told)
			}
			wantServed(t, m, foo)
			for _, form := range lookupForms(foo) {
				form.wantAnswer(t, m, "warm")
			}
			if _, err := m.ResourceFor(schema.GroupVersionResource{Resource: "absents"}); !meta.IsNoMatchError(err) {
				t.Errorf("what no group serves: %v; want NoMatch", err)
			}
			wantAbsent(t, m, newKind, otherKind)
			groups, _, err := apiutil.NewCachedDiscovery(m, discovery.NewDiscoveryClientForConfigOrDie(server.Config())).ServerGroupsAndResources()
			if err != nil || len(groups) != 1 || groups[0].Name != half.named {
				t.Errorf("the cached discovery has %v, %v", groups, err)
			}
			time.Sleep(time.Hour)
			wantServed(t, m, foo)
			synctest.Wait()
			if s := m.Status(); s.LastError != nil || m.Healthz(nil) != nil || time.Since(s.LastSuccess) > time.Minute {
				t.Errorf("after an hour: %+v", s)
			}
			server.SetFault(fakeapi.All(), fakeapi.EmptyGroupList())
			if err := m.Refresh(context.Background()); err == nil {
				t.Error("both lists are empty, and that is no error")
			}
			wantServed(t, m, foo)
		})
	}
}

// An account that may not read the documents finds what it may read, by the paths. What is in use cannot
// be confirmed then: the error of each lookup that needs a document, the log and Healthz name the rule
// that is missing.
func TestAccountThatMayNotReadTheDocument(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		server.SetFault(fakeapi.At("/api", "/apis"), fakeapi.Status(http.StatusForbidden, 0))
		for range 200 {
			wantServed(t, m, fooKind, otherKind)
			wantAbsent(t, m, newKind, lateKind)
			time.Sleep(time.Second)
		}
		_, err := m.KindFor(schema.GroupVersionResource{Resource: "foos"})
		for what, err := range map[string]error{"a lookup in any group": err, "Healthz": m.Healthz(nil), "Refresh": m.Refresh(context.Background())} {
			if err == nil || !strings.Contains(err.Error(), "ClusterRole system:discovery") || meta.IsNoMatchError(err) {
				t.Errorf("%s: %v; want the ClusterRole that is missing", what, err)
			}
		}
		synctest.Wait()
		wantLine(t, log.containing("API discovery fails"), "ClusterRole system:discovery")
		server.ClearFaults()
		wantServed(t, m, schema.GroupVersionKind{Version: "v1", Kind: "Pod"})
		if err := m.Refresh(context.Background()); err != nil || m.Healthz(nil) != nil {
			t.Errorf("with the rule: %v, %v", err, m.Healthz(nil))
		}
	})
}

// The error of a group's list is about the group: it is not filed under a version without a name. If
// versions of the group failed as well, these are named.
func TestErrorOfAGroupsListIsOfNoVersion(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		absent := schema.GroupKind{Group: "example.com", Kind: "Absent"}
		for _, broken := range []func(*http.Request) bool{fakeapi.At("/apis/example.com"), fakeapi.InGroup("example.com")} {
			server.ClearFaults()
			server.SetFault(broken, fakeapi.Status(http.StatusInternalServerError, 0))
			_, err := m.RESTMapping(absent)
			if err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "/apis/example.com") || strings.Contains(err.Error(), "example.com/:") {
				t.Errorf("got %v", err)
			}
			var failed *apiutil.ErrResourceDiscoveryFailed
			if errors.As(err, &failed) && (len(*failed) != 1 || (*failed)[fooKind.GroupVersion()] == nil) {
				t.Errorf("filed under %v", *failed)
			}
			if whole := broken(&http.Request{URL: &url.URL{Path: "/apis/example.com/v1"}}); whole != (failed != nil) {
				t.Errorf("an ErrResourceDiscoveryFailed: %t; want %t", failed != nil, whole)
			}
		}
	})
}
