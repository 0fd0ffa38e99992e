// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What exceeds a bound is an error of its version. Nothing else is lost.
func TestWhatExceedsABoundIsAnError(t *testing.T) {
	long := strings.Repeat("x", 300)
	const tooLong = "more than 253 bytes"
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		many := fakeapi.Group{Name: "many.example.com"}
		for i := range 70 {
			many.Versions = append(many.Versions, fakeVersion(fmt.Sprintf("v%d", i+1), fmt.Sprintf("Many%d", i+1)))
		}
		control, plural := fakeVersion("v1", "Control"), fakeVersion("v1", "Plural")
		control.Resources[0].Kind, plural.Resources[0].Name = "Red\x1b[31m", long
		server := newServer(forms)
		for _, g := range []fakeapi.Group{
			fakeGroup("kind.example.com", fakeVersion("v1", "Beside", "K"+long), fakeVersion("v2", "Fine")),
			fakeGroup("plural.example.com", plural),
			fakeGroup("version.example.com", fakeVersion("v1", "Short"), fakeVersion("v"+long, "Lost")),
			fakeGroup("control.example.com", control),
			fakeGroup("line\n.example.com", fakeVersion("v1", "Line")),
			fakeGroup(long, fakeVersion("v1", "Long")),
			many,
		} {
			server.Put(g)
		}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		for _, gk := range []schema.GroupKind{
			fooKind.GroupKind(), otherKind.GroupKind(), {Group: "kind.example.com", Kind: "Fine"}, {Group: "version.example.com", Kind: "Short"},
			{Group: "many.example.com", Kind: "Many1"}, {Group: "many.example.com", Kind: "Many64"},
		} {
			if _, err := m.RESTMapping(gk); err != nil {
				t.Errorf("%s exceeds nothing: %v", gk, err)
			}
		}
		for group, bound := range map[string]string{
			"kind.example.com": tooLong, "plural.example.com": tooLong, "version.example.com": tooLong, "control.example.com": "can't be printed",
			"many.example.com": "more than 64 versions", "": "",
		} {
			_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"})
			if group == "" {
				_, err = m.KindFor(schema.GroupVersionResource{Resource: "absents"}) // in all groups: all of the errors
			}
			if text := fmt.Sprint(err); err == nil || meta.IsNoMatchError(err) || !strings.Contains(text, bound) || strings.ContainsAny(text, "\n\x1b") || len(text) > 10_000 {
				t.Errorf("group %q: got %d bytes: %q; want an error of 10,000 at most, on one line, with %q in it", group, len(text), text, bound)
			}
		}
		wantServed(t, m, schema.GroupVersionKind{Group: "many.example.com", Version: "v70", Kind: "Many70"}, fooKind)
		for gv, err := range m.Status().FailedGroupVersions {
			if len(gv.String()) > 600 || strings.ContainsAny(gv.String()+err.Error(), "\n\x1b") {
				t.Errorf("the status has %q: %q; want short names that can be printed", gv, err)
			}
		}
	})
}

// The text of an error names ten group-versions.
func TestErrorNamesTenGroupVersions(t *testing.T) {
	failed := apiutil.ErrResourceDiscoveryFailed{}
	for i := range 12 {
		failed[schema.GroupVersion{Group: fmt.Sprintf("g%02d", i), Version: "v1"}] = errors.New("failed")
	}
	const want = "g08/v1: failed, g09/v1: failed and 2 more"
	if text := failed.Error(); !strings.HasSuffix(text, want) || len(failed.Unwrap()) != 12 {
		t.Errorf("of 12 errors %d can be told apart, and the text is %q; want all, and that it ends in %q", len(failed.Unwrap()), text, want)
	}
}

func TestBodiesAreBounded(t *testing.T) {
	const limit = 64 << 10
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := newServer(forms)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxResponseBytes: limit})
		for _, path := range []string{"/api", "/apis", "/apis/example.com", "/apis/example.com/v1"} {
			server.ClearFaults()
			server.SetFault(fakeapi.At(path), fakeapi.Huge(1<<40))
			server.TakeRequests()
			_, err := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"})
			for _, r := range server.TakeRequests() {
				if r.BodyBytes > limit+1 {
					t.Errorf("%s: %d bytes read; want %d at most", r, r.BodyBytes, limit+1)
				}
				if r.Path == path && strings.HasPrefix(r.Form, "Huge") && (err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "MaxResponseBytes")) {
					t.Errorf("a body without end at %s: %v; want an error that names the option", path, err)
				}
			}
			server.ClearFaults()
			if path != "/api" { // after the first round the mapper knows what there is
				wantServed(t, m, fooKind)
			}
		}

		page := strings.NewReader(strings.Repeat("x", 16*limit))
		server.SetFault(fakeapi.All(), fakeapi.Func("a long page", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 500, Body: io.NopCloser(page)}, nil
		}))
		err := lookUp(m, lateKind)
		read := page.Size() - int64(page.Len())
		if text := fmt.Sprint(err); err == nil || meta.IsNoMatchError(err) || len(text) > 4000 || read > 2*limit {
			t.Errorf("%d bytes of a long error page were read, for an error of %d: %v; want %d and 4000 at most", read, len(text), err, 2*limit)
		}
	})
}

// A rate limit of the rest.Config counts for discovery, too. What it does not send is no failure of the server.
func TestRateLimitOfTheConfigHolds(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		cfg := server.Config()
		cfg.QPS, cfg.Burst = 0.01, 1
		m := must(apiutil.NewDynamicRESTMapperWithOptions(cfg, server.Client(), apiutil.DynamicRESTMapperOptions{RequestTimeout: time.Minute}))
		err := m.Refresh(context.Background())
		if n, s := len(server.TakeRequests()), m.Status(); err == nil || n != 1 || s.ConsecutiveFailures != 0 || s.LastError != nil {
			t.Errorf("one request in 100 seconds is allowed, a minute is: %v, %d requests, %+v; want an error, one, and no failure", err, n, s)
		}
		cfg.QPS = 0.5
		start := time.Now()
		wantServed(t, must(apiutil.NewDynamicRESTMapper(cfg, server.Client())), fooKind)
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("two requests took %v; want 2s at 0.5 a second", took)
		}
	})
}

// RequestTimeout, and the contexts of callers, hold also beside a transport that does not
// stop when its request is cancelled.
func TestTransportThatCannotBeCancelled(t *testing.T) {
	const timeout, hang = 5 * time.Second, 5 * time.Minute
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		next := server.Client().Transport
		var hanging atomic.Bool
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			if hanging.Load() {
				time.Sleep(hang)
			}
			return next.RoundTrip(req)
		}), apiutil.DynamicRESTMapperOptions{RequestTimeout: timeout, RefreshInterval: time.Minute})
		readAll(t, m)
		hanging.Store(true)

		within := func(most time.Duration, what string, do func()) {
			start := time.Now()
			do()
			if took := time.Since(start); took > most {
				t.Errorf("%s took %v; want %v at most", what, took, most)
			}
		}
		within(2*time.Second, "Refresh and Subscribe with a context of a second", func() {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			defer cancel()
			if err := m.Refresh(ctx); err == nil {
				t.Error("Refresh: no error")
			}
			for range m.Subscribe(ctx) { // until it is closed
			}
		})
		within(2*(timeout+time.Second), "a lookup, which reads the document and the version", func() {
			m.Reset()
			wantServed(t, m, fooKind)
		})
		stop := startMapper(t, m)
		time.Sleep(timeout / 2)
		within(time.Second, "the end of Start", stop)

		hanging.Store(false)
		serve(server, newKind)
		wantServed(t, m, newKind)
		time.Sleep(hang)
	})
}

// A name that somebody looks up may be long. It is not kept, and a miss makes no copy of it unless
// NegativeTTL needs one.
func TestLongNamesAreNotKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		memory := func() (kept, made uint64) {
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc, stats.TotalAlloc
		}
		name, names := strings.Repeat("x", 256<<10), uint64(100)
		for _, ttl := range []time.Duration{0, time.Hour} {
			m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{NegativeTTL: ttl, MaxResponseBytes: math.MaxInt64})
			wantServed(t, m, fooKind)
			keptBefore, madeBefore := memory()
			for n := range names {
				wantAbsent(t, m, fooKind.GroupVersion().WithKind(name[n:]))
			}
			kept, made := memory()
			if kept > keptBefore+names*64<<10 || ttl == 0 && made > madeBefore+names*64<<10 {
				t.Errorf("NegativeTTL %v: %d bytes kept, %d made for %d names of 256 KiB; want 64 KiB for each at most", ttl, int64(kept-keptBefore), made-madeBefore, names)
			}
			runtime.KeepAlive(m)
		}
	})
}

// The memory of absences is bounded, and keeps the latest.
func TestNegativeTTLOfManyNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		for n := range 10_000 {
			wantAbsent(t, m, fooKind.GroupVersion().WithKind(fmt.Sprint("Absent", n)))
		}
		server.TakeRequests()
		wantAbsent(t, m, newKind, newKind)
		wantRequests(t, server, "the same twice, after ten thousand", "/apis/new.example.com/v1 404")
	})
}
