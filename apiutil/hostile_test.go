// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

// What a server, or a program between, cannot do: take memory and time without end, or have credentials shown.

package apiutil_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
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
			fooKind.GroupKind(),
			otherKind.GroupKind(),
			{Group: "kind.example.com", Kind: "Fine"},
			{Group: "version.example.com", Kind: "Short"},
			{Group: "many.example.com", Kind: "Many1"}, {Group: "many.example.com", Kind: "Many64"},
		} {
			if _, err := m.RESTMapping(gk); err != nil {
				t.Errorf("%s exceeds nothing: %v", gk, err)
			}
		}
		for group, bound := range map[string]string{
			"kind.example.com":    tooLong,
			"plural.example.com":  tooLong,
			"version.example.com": tooLong,
			"control.example.com": "can't be printed",
			"many.example.com":    "more than 64 versions", "": "",
		} {
			_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"})
			if group == "" {
				_, err = m.KindFor(schema.GroupVersionResource{Resource: "absents"}) // in all groups: all of the errors
			}
			if text := fmt.Sprint(err); err == nil || meta.IsNoMatchError(err) || !strings.Contains(text, bound) ||
				strings.ContainsAny(text, "\n\x1b") || len(text) > 10_000 {
				t.Errorf("group %q: got %d bytes: %q; want an error of 10,000 at most, on one line, with %q in it",
					group, len(text), text, bound)
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
		t.Errorf("of 12 errors %d can be told apart, and the text is %q; want all, and that it ends in %q",
			len(failed.Unwrap()), text, want)
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
				if r.Path == path && strings.HasPrefix(r.Form, "Huge") &&
					(err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), "MaxResponseBytes")) {
					t.Errorf("a body without end at %s: %v; want an error that names the option", path, err)
				}
			}
			server.ClearFaults()
			if path != "/api" { // after the first time the mapper knows what there is
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
			t.Errorf("%d bytes of a long error page were read, for an error of %d: %v; want %d and 4000 at most",
				read, len(text), err, 2*limit)
		}
	})
}

// A rate limit of the rest.Config counts for discovery, too. What it does not send is no failure of the server.
func TestRateLimitOfTheConfigHolds(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		cfg := server.Config()
		cfg.QPS, cfg.Burst = 0.01, 1
		opts := apiutil.DynamicRESTMapperOptions{RequestTimeout: time.Minute}
		m := must(apiutil.NewDynamicRESTMapperWithOptions(cfg, server.Client(), opts))
		err := m.Refresh(context.Background())
		if n, s := len(server.TakeRequests()), m.Status(); err == nil || n != 1 || s.ConsecutiveFailures != 0 ||
			s.LastError != nil {
			t.Errorf("one request in 100 seconds is allowed, a minute is: %v, %d requests, %+v; want an error, one, and no "+
				"failure",
				err, n, s)
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
	bubble.Run(t, func(t *testing.T) {
		memory := func() (kept, made uint64) {
			var stats runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&stats)
			return stats.HeapAlloc, stats.TotalAlloc
		}
		name, names := strings.Repeat("x", 256<<10), uint64(100)
		for _, ttl := range []time.Duration{0, time.Hour} {
			m := newMapper(
				t, newServer(fakeapi.Aggregated()),
				apiutil.DynamicRESTMapperOptions{NegativeTTL: ttl, MaxResponseBytes: math.MaxInt64},
			)
			wantServed(t, m, fooKind)
			keptBefore, madeBefore := memory()
			for n := range names {
				wantAbsent(t, m, fooKind.GroupVersion().WithKind(name[n:]))
			}
			kept, made := memory()
			if kept > keptBefore+names*64<<10 || ttl == 0 && made > madeBefore+names*64<<10 {
				t.Errorf("NegativeTTL %v: %d bytes kept, %d made for %d names of 256 KiB; want 64 KiB for each at most",
					ttl, int64(kept-keptBefore), made-madeBefore, names)
			}
			runtime.KeepAlive(m)
		}
	})
}

// The memory of absences is bounded, and keeps the latest.
func TestNegativeTTLOfManyNames(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
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

// echo makes a fault that answers with what say makes of the credentials that were sent, and
// repeats them in a header that client-go would log.
func echo(code int, contentType string, say func(sent string) string) fakeapi.Fault {
	return fakeapi.Func("echo", func(req *http.Request) (*http.Response, error) {
		sent := cmp.Or(req.Header.Get("X-Api-Key"), req.Header.Get("Cookie"), req.Header.Get("Authorization"))
		body := say(sent)
		return &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {contentType}, "Warning": {`299 - "` + sent + `"`}},
			Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	})
}

func asStatus(message string) string {
	return fmt.Sprintf(
		`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%s,"reason":"Forbidden"}`,
		must(json.Marshal(message)),
	)
}

// A caller has credentials, which must not be shown.
type caller struct {
	configure func(cfg *rest.Config)                         // nil: without credentials
	transport func(next http.RoundTripper) http.RoundTripper // nil: as rest.HTTPClientFor makes it
	secrets   []string
	opaque    bool // nothing in an error of a transport tells that this is a secret
}

func (c caller) mapper(server *fakeapi.Server) *apiutil.DynamicRESTMapper {
	cfg := server.Config()
	if cfg.BearerToken = ""; c.configure != nil {
		c.configure(cfg)
	}
	client := must(rest.HTTPClientFor(cfg))
	if c.transport != nil {
		client = &http.Client{Transport: c.transport(cfg.Transport)}
	}
	return must(apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{}))
}

// callers are how credentials get into requests.
func callers(t *testing.T) map[string]caller {
	const token, user, password = "eyJhbGciOiJSUzI1NiJ9.of-a-file.signature", "sent-user", `sent"pass\word`
	basic := []string{user, base64.StdEncoding.EncodeToString([]byte(user + ":" + password)), `pass\word`, `pass\\word`}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	adding := func(name, value string) func(http.RoundTripper) http.RoundTripper {
		return func(next http.RoundTripper) http.RoundTripper {
			return through(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set(name, value)
				return next.RoundTrip(req)
			})
		}
	}
	inURL := "http://" + user + ":" + url.QueryEscape(password) + "@fake.invalid"
	withPassword := adding("Authorization", "Basic "+basic[1])
	plain := func(next http.RoundTripper) http.RoundTripper { return next }
	return map[string]caller{
		"token":                   {configure: func(cfg *rest.Config) { cfg.BearerToken = token }, secrets: []string{token}},
		"token file":              {configure: func(cfg *rest.Config) { cfg.BearerTokenFile = file }, secrets: []string{token}},
		"password":                {configure: func(cfg *rest.Config) { cfg.Username, cfg.Password = user, password }, secrets: basic},
		"password in the URL":     {configure: func(cfg *rest.Config) { cfg.Host = inURL }, transport: plain, secrets: basic},
		"password of a transport": {transport: withPassword, secrets: basic},
		"token of a transport": {
			transport: adding("Authorization", "Bearer "+fakeapi.Token), secrets: []string{fakeapi.Token}, opaque: true,
		},
		"key of a gateway": {
			transport: adding("X-Api-Key", "key-of-a-gateway"), secrets: []string{"key-of-a-gateway"}, opaque: true,
		},
		"cookie of a session": {
			transport: adding("Cookie", "a=b; session=cookie-of-a-session"), secrets: []string{"cookie-of-a-session"},
			opaque: true,
		},
	}
}

// sayings are what a server makes of the credentials that it repeats.
func sayings() map[string]func(sent string) string {
	bare := func(sent string) string { _, after, _ := strings.Cut(sent, " "); return after }
	decoded := func(sent string) string {
		if pair, err := base64.StdEncoding.DecodeString(bare(sent)); err == nil {
			return string(pair)
		}
		return bare(sent)
	}
	return map[string]func(string) string{
		"whole": func(sent string) string { return sent + " \x1b[2J\nI1122 forged" },
		"long":  func(sent string) string { return strings.Repeat(sent+" ", 1<<10) },
		"bare":  bare, "decoded": decoded, "quoted": func(sent string) string { return strconv.Quote(decoded(sent)) },
	}
}

// echoes are answers that repeat what was sent, and other ways to fail.
func echoes() map[string]fakeapi.Fault {
	const jsonType = "application/json"
	inJSON := func(format string) func(string) string {
		return func(sent string) string {
			text, _ := json.Marshal(sent)
			return strings.ReplaceAll(format, "%", string(text))
		}
	}
	faults := map[string]fakeapi.Fault{
		"refused": fakeapi.Refused(), // with a URL in the error
		"no HTTP": fakeapi.Func("no HTTP", func(req *http.Request) (*http.Response, error) { // as of net/http
			return nil, errors.New("malformed MIME header line: " + req.Header.Get("Authorization"))
		}),
		"a redirect": fakeapi.Func("redirect", func(req *http.Request) (*http.Response, error) {
			sent := strings.Fields("none " + req.Header.Get("Authorization"))
			return &http.Response{
				StatusCode: 302, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
				Header: http.Header{"Location": {"http://" + strings.TrimRight(sent[len(sent)-1], "=") + ".invalid/apis"}},
			}, nil
		}),
	}
	for how, say := range sayings() {
		for form, answer := range map[string]struct {
			code int
			kind string
			body func(string) string
		}{
			"a Status":        {403, jsonType, func(sent string) string { return asStatus("refused: " + sent) }},
			"a page":          {401, "text/html", func(sent string) string { return "<p>" + sent }},
			"a text with 200": {200, jsonType, func(sent string) string { return sent + " \x1b[2J\nI1122 forged" }},
			"a kind":          {200, jsonType, inJSON(`{"kind":%,"apiVersion":%}`)},
			"a group-version": {200, jsonType, inJSON(`{"kind":"APIResourceList","groupVersion":%}`)},
			"a group":         {200, jsonType, inJSON(`{"kind":"APIGroup","name":%}`)},
		} {
			faults[form+", "+how] = echo(answer.code, answer.kind, func(sent string) string { return answer.body(say(sent)) })
		}
	}
	return faults
}

// A server, or a proxy before it, may repeat in its answer what it was sent: all of the
// header, the credentials in it, or a password that it has decoded. However a request fails,
// its URL is not shown. No text that it sends is long, or moves a cursor, and none is logged.
func TestErrorsDoNotShowCredentials(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer klog.CaptureState().Restore()
	klog.SetLogger(funcr.New(func(_, args string) { t.Errorf("logged: %s", args) }, funcr.Options{}))
	for form, fault := range echoes() {
		for name, caller := range callers(t) {
			_, how, repeats := strings.Cut(form, ", ")
			if caller.opaque && (repeats && how != "whole" || form == "a redirect") {
				continue // nobody can tell that this is a secret
			}
			t.Run(form+"/"+name, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				m := caller.mapper(server)
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, caller.secrets...)
				server.ClearFaults()
				wantServed(t, m, fooKind)
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, caller.secrets...)
			})
		}
	}
}

// wantSilence looks up something that does not exist, and searches the errors for secrets.
func wantSilence(t *testing.T, m meta.RESTMapper, secrets ...string) {
	t.Helper()
	_, versioned := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"}, "v1")
	_, anyVersion := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"})
	_, anyGroup := m.KindFor(schema.GroupVersionResource{Resource: "absents"})
	for _, err := range []error{versioned, anyVersion, anyGroup} {
		if text := fmt.Sprint(err); err == nil || meta.IsNoMatchError(err) || strings.ContainsAny(text, "\x1b\n") ||
			len(text) > 2500 {
			t.Errorf("got %d bytes: %q; want an error on one line, which is short and no NoMatch", len(text), text)
		}
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			for _, secret := range secrets {
				if strings.Contains(strings.ToLower(cause.Error()), strings.ToLower(strings.TrimRight(secret, "="))) {
					t.Errorf("the secret %q is in: %v", secret, cause)
				}
			}
		}
	}
}

// A password that is in the words that say that a kind is absent makes no error of that.
func TestShortPasswordsHideNoAbsence(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := newServer(forms)
		for _, password := range []string{"404", "served", "e"} {
			m := caller{configure: func(cfg *rest.Config) { cfg.Username, cfg.Password = "me", password }}.mapper(server)
			wantAbsent(t, m, lateKind)
		}
	})
}

// An error of a transport may have credentials in it that it sent elsewhere. What else it says is shown.
func TestErrorsOfTransportsDoNotShowCredentials(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9"
	for _, text := range []string{
		`Post "https://me:` + secret + `@login.invalid/token": connection refused`,
		`Post "https://login.invalid/token?key=` + secret + `&x=y": connection refused`,
		`Post https://login.invalid/token?key=` + secret + ` connection refused`,
		`cannot fetch token: 400 Response: {"access_token": "` + secret + `"}: connection refused`,
		`cannot fetch token: "{\"refresh_token\":\"` + secret + `\"}": connection refused`,
		`cannot fetch token: client_secret=` + secret + `&grant=code: connection refused`,
		`exec: Bearer ` + secret + `: connection refused`,
	} {
		failing := through(func(*http.Request) (*http.Response, error) { return nil, errors.New(text) })
		m := newMapperThrough(t, newServer(fakeapi.Aggregated()), failing, apiutil.DynamicRESTMapperOptions{})
		wantSilence(t, m, secret)
		if err := lookUp(m, fooKind); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("of the transport's %s: got %v; want that the connection was refused", text, err)
		}
	}
}

// A caller may look up names of any length, as those of a request that it serves. The log, the debug page, and those
// who wait keep none of them.
func TestNamesOfCallersAreNotKept(t *testing.T) {
	const lookups, length = 30, 1 << 20
	server := newServer(fakeapi.Aggregated())
	discard := funcr.New(func(string, string) {}, funcr.Options{Verbosity: 9})
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: discard, NegativeTTL: time.Hour})
	page := m.DebugHandler()
	wantServed(t, m, fooKind)
	before := heap()
	for i := range lookups {
		name := fmt.Sprint(i, strings.Repeat("x", length))
		_, _ = m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: name}, "v1")
		_, _ = m.RESTMapping(schema.GroupKind{Group: name, Kind: "Foo"}, "v1")
		_, _ = m.RESTMapping(schema.GroupKind{Group: name, Kind: "Foo"})
		_, _ = m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Foo"}, name)
		_, _ = m.ResourceFor(schema.GroupVersionResource{Resource: name})
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Millisecond)
		_ = served.Wait(ctx, m, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: name})
		cancel()
	}
	time.Sleep(100 * time.Millisecond) // reports
	if grown := heap() - before; grown > 4*length {
		t.Errorf("%d lookups of names of %d bytes have kept %d bytes; want nothing that grows", lookups, length, grown)
	}
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/?format=json", nil))
	if n := answer.Body.Len(); n > 1<<20 || !strings.Contains(answer.Body.String(), "xxx…") {
		t.Errorf("the debug page has %d bytes; want the beginnings of the names", n)
	}
}

// heap returns how many bytes are in use.
func heap() int {
	var stats runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}
