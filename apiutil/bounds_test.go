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
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// wantBound looks up something absent, and wants the error to name a bound.
func wantBound(t *testing.T, m meta.RESTMapper, group, bound string) {
	t.Helper()
	_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"})
	if err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), bound) || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 4000 {
		t.Errorf("group %q: got %q, want an error with %q in it", group, err, bound)
	}
}

// What exceeds a bound is an error of its version. Nothing else is lost.
func TestWhatExceedsABoundIsAnError(t *testing.T) {
	long := strings.Repeat("x", 300)
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		many := fakeapi.Group{Name: "many.example.com"}
		for i := range 70 {
			many.Versions = append(many.Versions, fakeVersion(fmt.Sprintf("v%d", i+1), fmt.Sprintf("Many%d", i+1)))
		}
		control := fakeVersion("v1", "Control")
		control.Resources[0].Kind = "Red\x1b[31m"
		plural := fakeVersion("v1", "Plural")
		plural.Resources[0].Name = long
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
				t.Error(err)
			}
		}
		const tooLong = "more than 253 bytes"
		wantBound(t, m, "kind.example.com", tooLong)
		wantBound(t, m, "plural.example.com", tooLong)
		wantBound(t, m, "version.example.com", tooLong)
		wantBound(t, m, "control.example.com", "can't be printed")
		wantBound(t, m, "many.example.com", "more than 64 versions")
		wantServed(t, m, schema.GroupVersionKind{Group: "many.example.com", Version: "v70", Kind: "Many70"})
		wantServed(t, m, fooKind)

		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "absents"}); err == nil || meta.IsNoMatchError(err) || len(err.Error()) > 10_000 {
			t.Errorf("in all groups: %v", err)
		}
		for gv, err := range m.Status().FailedGroupVersions {
			if len(gv.String()) > 600 || strings.ContainsAny(gv.String()+err.Error(), "\n\x1b") {
				t.Errorf("%q: %q", gv, err)
			}
		}
	})
}

// An ETag that is too long is not sent back: a server may refuse a request with such a
// header, each time.
func TestLongETagIsNotSentBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for size, want := range map[int]bool{200: true, 2 << 20: false} {
		server := newServer(fakeapi.Aggregated())
		next, sent := server.Client().Transport, false
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			sent = sent || len(req.Header.Get("If-None-Match")) > 100
			req = req.Clone(req.Context())
			req.Header.Del("If-None-Match")
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Header.Set("ETag", `"`+strings.Repeat("x", size)+`"`)
			}
			return resp, err
		}), apiutil.DynamicRESTMapperOptions{})
		for range 2 {
			m.Reset()
			wantServed(t, m, fooKind)
		}
		if sent != want {
			t.Errorf("an ETag of %d bytes was sent back: %v", size, sent)
		}
	}
}

// The text of an error names ten group-versions.
func TestErrorNamesTenGroupVersions(t *testing.T) {
	failed := apiutil.ErrResourceDiscoveryFailed{}
	for i := range 12 {
		failed[schema.GroupVersion{Group: fmt.Sprintf("g%02d", i), Version: "v1"}] = errors.New("failed")
	}
	if text := failed.Error(); !strings.HasSuffix(text, "g08/v1: failed, g09/v1: failed and 2 more") || len(failed.Unwrap()) != 12 {
		t.Errorf("got %q", text)
	}
}

// The causes that a caller may want to tell apart can be told apart.
func TestCausesCanBeToldApart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := newServer(fakeapi.Aggregated())
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

// endlessBody is an error page without an end.
type endlessBody struct{ read *int }

func (b endlessBody) Read(p []byte) (int, error) {
	*b.read += len(p)
	return copy(p, strings.Repeat("x", len(p))), nil
}

func TestBodiesAreBounded(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const limit = 64 << 10
	foo := schema.GroupKind{Group: "example.com", Kind: "Foo"}
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
					t.Errorf("%s: %d bytes read", r, r.BodyBytes)
				}
				if r.Path == path && r.Form == "Huge(1099511627776)" && (err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "MaxResponseBytes")) {
					t.Errorf("%s: %v", path, err)
				}
			}
			if path != "/api" { // after the first round the mapper knows what there is
				server.ClearFaults()
				if _, err := m.RESTMapping(foo); err != nil {
					t.Error(err)
				}
			}
		}

		read := 0
		server.SetFault(fakeapi.All(), fakeapi.Func("endless", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 500, Body: io.NopCloser(endlessBody{&read})}, nil
		}))
		if _, err := m.RESTMapping(foo, "v9"); err == nil || meta.IsNoMatchError(err) || len(err.Error()) > 4000 {
			t.Errorf("an endless error page: %v", err)
		}
		if read > 2*limit {
			t.Errorf("%d bytes of an endless error page read", read)
		}
	})
}

// Until the document was read once, the mapper waits for a server that is too busy, as client-go does:
// a program that exits without an answer would start again and again.
func TestRetryAfterIsObeyedAtFirst(t *testing.T) {
	for _, test := range []struct {
		name     string
		fault    fakeapi.Fault
		at       string        // the path that is busy, with all below it
		deadline time.Duration // of the caller; 0: none
		took     time.Duration
		requests int
		fails    string // text of the error; empty: the kind is found
	}{
		{name: "busy once", fault: fakeapi.Times(1, fakeapi.Status(503, 1)), took: time.Second, requests: 3},
		{name: "too many requests, twice", fault: fakeapi.Times(2, fakeapi.Status(429, 2)), took: 4 * time.Second, requests: 4},
		{name: "only /apis", at: "/apis", fault: fakeapi.Times(1, fakeapi.Status(500, 1)), took: time.Second, requests: 3},
		{name: "for ever", fault: fakeapi.Status(503, 1), took: 9 * time.Second, requests: 10, fails: "1 seconds"},
		{name: "for longer than RequestTimeout", fault: fakeapi.Status(503, 10), requests: 1, fails: "10 seconds"},
		{name: "absurdly long", fault: fakeapi.Status(503, 1<<62), requests: 1, fails: "seconds"},
		{name: "the server does not say when", fault: fakeapi.Status(503, 0), requests: 1, fails: "503"},
		{name: "not allowed", fault: fakeapi.Status(403, 1), requests: 1, fails: "403"},
		{name: "the caller has no time", fault: fakeapi.Status(503, 1), deadline: time.Second / 2, took: time.Second / 2, requests: 1, fails: "deadline"},
	} {
		t.Run(test.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RequestTimeout: 10 * time.Second})
				match := fakeapi.All()
				if test.at != "" {
					match = fakeapi.At(test.at)
				}
				server.SetFault(match, test.fault)
				ctx := t.Context()
				if test.deadline > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, test.deadline)
					defer cancel()
				}
				start := time.Now()
				_, err := m.KindForWithContext(ctx, schema.GroupVersionResource{Resource: "pods"})
				if took := time.Since(start); took != test.took {
					t.Errorf("took %v, want %v", took, test.took)
				}
				if n := len(server.TakeRequests()); n < test.requests || n > test.requests && test.fails != "" {
					t.Errorf("%d requests, want %d", n, test.requests)
				}
				if (err != nil) != (test.fails != "") || meta.IsNoMatchError(err) || err != nil && !strings.Contains(err.Error(), test.fails) {
					t.Errorf("got %v, want %q", err, test.fails)
				}
			})
		})
	}
}

// Later the mapper reports a Retry-After and does not wait: client-go would sleep inside the
// request, while others wait for it. The next lookup asks at once.
func TestRetryAfterIsReportedAndNotAwaited(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for _, test := range []struct {
		code, after int // after is in seconds; 0: the server does not say when
		text        string
	}{
		{429, 3, "429 Too Many Requests"}, {503, 5, "503 Service Unavailable"}, {429, 0, "429 Too Many Requests"},
	} {
		synctest.Test(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			readAll(t, m)
			serve(server, newKind)
			server.SetFault(fakeapi.All(), fakeapi.Times(1, fakeapi.Status(test.code, test.after)))
			server.TakeRequests()
			start := time.Now()
			err := lookUp(m, newKind)
			if err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), test.text) {
				t.Errorf("got %v, want something of %q", err, test.text)
			}
			if test.after > 0 && !strings.Contains(err.Error(), fmt.Sprintf("%d seconds", test.after)) {
				t.Errorf("the text does not name the seconds: %v", err)
			}
			if after, said := apierrors.SuggestsClientDelay(err); after != test.after || said != (test.after > 0) {
				t.Errorf("the error says to come back after %d seconds (%t), the server said %d", after, said, test.after)
			}
			wantServed(t, m, newKind)
			if took := time.Since(start); took != 0 {
				t.Errorf("took %v", took)
			}
			if requests := server.TakeRequests(); len(requests) != 2 {
				t.Errorf("%d requests for two lookups: %v", len(requests), requests)
			}
		})
	}
}

// A request has RequestTimeout, and a lookup waits only mostPatient for the next one in a
// group that has not answered. Versions that do not answer, here two in each of two groups,
// keep no others from being read.
func TestRequestsEndByTheirTimeout(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		groups := fakeapi.Typical(50, 2, 1)
		server := fakeapi.New(groups...)
		server.SetForms(fakeapi.Legacy())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RequestTimeout: 7 * time.Second})
		server.SetFault(fakeapi.Under("/apis/g0001.example.com"), fakeapi.Timeout())
		server.SetFault(fakeapi.Under("/apis/g0002.example.com"), fakeapi.Timeout())
		start := time.Now()
		_, err := m.KindFor(schema.GroupVersionResource{Resource: "absents"})
		if took := time.Since(start); took != 7*time.Second+mostPatient {
			t.Errorf("took %v", took)
		}
		if !errors.Is(err, context.DeadlineExceeded) || meta.IsNoMatchError(err) {
			t.Errorf("got %v", err)
		}
		server.ClearFaults()
		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "kind0050as"}); err != nil {
			t.Errorf("healed: %v", err)
		}
	})
}

// A rate limit of the rest.Config counts for discovery, too.
func TestRateLimitOfTheConfigHolds(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		cfg := server.Config()
		cfg.QPS, cfg.Burst = 0.5, 1
		m, err := apiutil.NewDynamicRESTMapper(cfg, server.Client())
		if err != nil {
			t.Fatal(err)
		}
		start := time.Now()
		if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1"); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(start); took != 2*time.Second {
			t.Errorf("two requests took %v", took)
		}
	})
}

// The largest limits work, too.
func TestTheLargestLimits(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{
			MaxAge: math.MaxInt64, NegativeTTL: math.MaxInt64, RequestTimeout: math.MaxInt64, MaxResponseBytes: math.MaxInt64,
			UnhealthyAfter: math.MaxInt64, RefreshInterval: math.MaxInt64, WatchAPIs: true,
		})
		stop := startMapper(t, m)
		defer stop()
		time.Sleep(time.Minute)
		wantServed(t, m, fooKind)
		wantAbsent(t, m, newKind)
		if err := m.Healthz(nil); err != nil {
			t.Error(err)
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

		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := m.Refresh(ctx); err == nil {
			t.Error("Refresh: no error")
		}
		for range m.Subscribe(ctx) { // until it is closed
		}
		if took := time.Since(start); took > 2*time.Second {
			t.Errorf("Refresh and Subscribe took %v beyond their context", took-time.Second)
		}

		start = time.Now()
		m.Reset()
		wantServed(t, m, fooKind)
		if took := time.Since(start); took > 2*(timeout+time.Second) { // the document, and the version
			t.Errorf("a lookup took %v", took)
		}

		stop := startMapper(t, m)
		time.Sleep(timeout / 2)
		start = time.Now()
		stop()
		if took := time.Since(start); took > time.Second {
			t.Errorf("Start returned %v after its context ended", took)
		}

		hanging.Store(false)
		serve(server, newKind)
		wantServed(t, m, newKind)
		time.Sleep(hang)
	})
}

// The error is the same as that of the server, in every form of lookup.
func TestNegativeTTLOfEveryLookup(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Minute})
		plain := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		forms := lookupForms(newKind)
		for _, form := range forms {
			_, want := form.ask(context.Background(), plain)
			for range 2 {
				if _, err := form.ask(context.Background(), m); err == nil || err.Error() != want.Error() {
					t.Errorf("%s: %v; want %v", form.name, err, want)
				}
			}
		}
		server.TakeRequests()
		for _, form := range forms {
			if _, err := form.ask(context.Background(), m); err == nil {
				t.Errorf("%s: found", form.name)
			}
		}
		wantRequests(t, server, "what was asked before")
		serve(server, newKind)
		m.Reset()
		for _, form := range forms {
			form.wantAnswer(t, m, "after a reset")
		}
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
			m := newMapper(t, newServer(fakeapi.Aggregated()), apiutil.DynamicRESTMapperOptions{NegativeTTL: ttl})
			wantServed(t, m, fooKind)
			keptBefore, madeBefore := memory()
			for n := range names {
				wantAbsent(t, m, fooKind.GroupVersion().WithKind(name[n:]))
			}
			kept, made := memory()
			if kept > keptBefore+names*64<<10 || ttl == 0 && made > madeBefore+names*64<<10 {
				t.Errorf("NegativeTTL %v: %d bytes kept, %d made for %d names", ttl, int64(kept-keptBefore), made-madeBefore, names)
			}
			runtime.KeepAlive(m)
		}
	})
}

// The memory of absences is bounded.
func TestNegativeTTLOfManyNames(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour})
		for n := range 10000 {
			gvk := fooKind
			gvk.Kind = "Absent" + time.Duration(n).String()
			wantAbsent(t, m, gvk)
		}
		server.TakeRequests()
		wantAbsent(t, m, newKind)
		wantAbsent(t, m, newKind)
		wantRequests(t, server, "after ten thousand", "/apis/new.example.com/v1 404")
	})
}
