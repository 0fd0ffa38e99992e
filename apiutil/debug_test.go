// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

func TestStatusAsJSON(t *testing.T) {
	at := time.Date(2026, 11, 21, 10, 30, 0, 0, time.UTC)
	for want, status := range map[string]apiutil.DynamicRESTMapperStatus{
		`{"generation":0,"groups":0,"kinds":0,"consecutiveFailures":0,"watching":false}`: {},
		`{"generation":7,"groups":2,"kinds":3,"lastAttempt":"2026-11-21T10:30:00Z","lastSuccess":"2026-11-21T10:30:00Z",` +
			`"lastError":"it \"failed\"","consecutiveFailures":4,"unhealthySince":"2026-11-21T10:30:00Z",` +
			`"failedGroupVersions":{"apps/v1":"down","v1":"gone"},"watching":true}`: {
			Generation: 7, Groups: 2, Kinds: 3, LastAttempt: at, LastSuccess: at, LastError: errors.New(`it "failed"`), ConsecutiveFailures: 4,
			UnhealthySince: at, Watching: true,
			FailedGroupVersions: map[schema.GroupVersion]error{{Group: "apps", Version: "v1"}: errors.New("down"), {Version: "v1"}: errors.New("gone")},
		},
	} {
		got, err := json.Marshal(status)
		if err != nil || string(got) != want {
			t.Errorf("error %v\ngot  %s\nwant %s", err, got, want)
		}
		if pointed, err := json.Marshal(&status); err != nil || string(pointed) != want {
			t.Errorf("of a pointer: %v, %s", err, pointed)
		}
	}
}

func debugGet(t *testing.T, h http.Handler, target, accept string) *httptest.ResponseRecorder {
	t.Helper()
	req := httptest.NewRequest(http.MethodGet, target, nil)
	req.Header.Set("Accept", accept)
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	if w.Code != http.StatusOK {
		t.Errorf("%s: status %d", target, w.Code)
	}
	return w
}

// debugJSON is what the tests look at.
type debugJSON struct {
	Status struct {
		Groups, Kinds       int
		LastError           string
		FailedGroupVersions map[string]string
	}
	Options struct {
		RefreshInterval    string
		WatchAPIs, Started bool
	}
	Groups []struct {
		Name     string
		Versions []struct {
			Name, Error string
			Kinds       []struct {
				Kind, Resource string
				Namespaced     bool
			}
		}
	}
	Reads  []struct{ Time, Part, Group, Version, Duration, Error string }
	Absent []struct {
		Group, Kind, Resource, Last string
		Versions                    []string
		Times                       int
	}
	Changes []struct {
		Generation              uint64
		Added, Removed, Changed []string
	}
}

func debugData(t *testing.T, h http.Handler) debugJSON {
	t.Helper()
	synctest.Wait()
	w := debugGet(t, h, "/debug/restmapper?format=json", "text/html")
	if got := w.Header().Get("Content-Type"); got != "application/json" {
		t.Errorf("Content-Type %q", got)
	}
	var data debugJSON
	if err := json.Unmarshal(w.Body.Bytes(), &data); err != nil {
		t.Fatalf("%v in\n%s", err, w.Body)
	}
	return data
}

func TestDebugHandler(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		h := m.DebugHandler()
		empty := debugData(t, h)
		if len(empty.Groups)+len(empty.Reads)+len(empty.Changes) > 0 || empty.Groups == nil || len(server.TakeRequests()) > 0 {
			t.Errorf("before any read: %+v", empty)
		}

		readAll(t, m)
		dead := fakeVersion("v1", "New")
		dead.Stale = true
		server.PutVersion(newKind.Group, dead)
		server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster"))
		heal := server.SetFault(fakeapi.Under("/apis/"+newKind.Group), fakeapi.Status(503, 0))
		defer heal()
		readAll(t, m)
		_ = lookUp(m, newKind)
		server.TakeRequests()

		data := debugData(t, h)
		wantRequests(t, server, "the page")
		if data.Status.Groups != 4 || data.Options.RefreshInterval != "1m0s" || data.Options.Started {
			t.Errorf("status %+v, options %+v", data.Status, data.Options)
		}
		if data.Status.FailedGroupVersions["new.example.com/v1"] == "" {
			t.Errorf("failed: %q", data.Status.FailedGroupVersions)
		}
		for _, g := range data.Groups {
			if g.Name == "example.com" && (len(g.Versions) != 1 || len(g.Versions[0].Kinds) != 1 || g.Versions[0].Kinds[0].Namespaced || g.Versions[0].Kinds[0].Kind != "Foo") {
				t.Errorf("example.com: %+v", g)
			}
			if g.Name == newKind.Group && g.Versions[0].Error == "" {
				t.Errorf("no error of the dead version: %+v", g)
			}
		}
		if len(data.Reads) < 2 || data.Reads[0].Time < data.Reads[len(data.Reads)-1].Time || data.Reads[0].Part == "" {
			t.Errorf("reads: %+v", data.Reads)
		}
		if latest := data.Changes[0]; len(data.Changes) < 2 || data.Changes[len(data.Changes)-1].Generation >= latest.Generation {
			t.Errorf("changes: %+v", data.Changes)
		}
	})
}

// The number of kept reads is bounded. Nothing is kept from before the page is mounted.
func TestDebugKeepsTheLatest(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		serve(server, newKind)
		wantServed(t, m, newKind)
		synctest.Wait()
		h := m.DebugHandler()
		if data := debugData(t, h); len(data.Changes) > 0 || len(data.Groups) != 4 {
			t.Errorf("from before: %+v", data)
		}
		for i := range 120 {
			kind := "Foo"
			if i%2 == 1 {
				kind = "Foo:cluster"
			}
			server.PutVersion("example.com", fakeVersion("v1", kind))
			readAll(t, m)
			synctest.Wait()
		}
		data := debugData(t, h)
		if len(data.Reads) != 50 || len(data.Changes) != 50 {
			t.Errorf("%d reads, %d changes", len(data.Reads), len(data.Changes))
		}
		if diff := cmp.Diff([]string{"example.com/v1.Foo"}, data.Changes[0].Changed); diff != "" {
			t.Errorf("the latest change (-want +got):\n%s", diff)
		}
	})
}

// The page is HTML that no group, kind or error can break out of. A server that repeats the
// token that it was sent does not get it onto the page.
func TestDebugPageIsSafe(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const evil = "<script>alert(1)</script>"
		server := newServer(fakeapi.Aggregated())
		token := server.Config().BearerToken
		if token == "" {
			t.Fatal("the test needs a token")
		}
		server.SetFault(fakeapi.At("/apis/new.example.com/v1"), echo(403, "application/json", func(sent string) string { return asStatus("refused: " + sent + evil) }))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Hour})
		h := m.DebugHandler()
		readAll(t, m)
		_ = lookUp(m, newKind)
		synctest.Wait()
		for accept, want := range map[string]string{"": "text/html", "text/html,application/json": "text/html", "*/*": "text/html", "application/json": "application/json"} {
			w := debugGet(t, h, "/", accept)
			if got := w.Header().Get("Content-Type"); !strings.HasPrefix(got, want) {
				t.Errorf("Accept %q: Content-Type %q", accept, got)
			}
			if csp := w.Header().Get("Content-Security-Policy"); !strings.Contains(csp, "default-src 'none'") || !strings.Contains(csp, "frame-ancestors 'none'") {
				t.Errorf("Content-Security-Policy %q", csp)
			}
			if body := w.Body.String(); strings.Contains(body, evil) || strings.Contains(body, "%!") || strings.Contains(body, token) || !strings.Contains(body, "refused") {
				t.Errorf("Accept %q:\n%s", accept, body)
			}
		}
		wantPage(t, h, "/", "<!doctype html>", "example.com", `"refreshInterval": "1h0m0s"`, `"started": false`, `\u003cscript\u003e`, `href="?format=json"`, "</html>")
		post := httptest.NewRecorder()
		h.ServeHTTP(post, httptest.NewRequest(http.MethodPost, "/", nil))
		if post.Code != http.StatusMethodNotAllowed {
			t.Errorf("POST: %d", post.Code)
		}
	})
}

func wantPage(t *testing.T, h http.Handler, target string, wants ...string) {
	t.Helper()
	page := debugGet(t, h, target, "text/html").Body.String()
	for _, want := range wants {
		if !strings.Contains(page, want) {
			t.Errorf("%s: no %q in\n%s", target, want, page)
		}
	}
}

// The page says by name what is read, and what lookups do not find. What is asked for again
// and again comes to the top.
func TestDebugNames(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour, Logger: logger})
		wantAbsent(t, m, newKind)
		h := m.DebugHandler()
		if data := debugData(t, h); len(data.Absent) > 0 {
			t.Errorf("from before the page was mounted: %+v", data.Absent)
		}
		for i := range 500 {
			if i >= 300 && i%10 == 0 {
				wantAbsent(t, m, lateKind)
				_, _ = m.KindFor(schema.GroupVersionResource{Resource: "absents"})
			}
			seldom := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Seldom" + strings.Repeat("x", i)}
			_ = lookUp(m, seldom)
			if i < 300 {
				_ = lookUp(m, seldom)
			}
		}
		data := debugData(t, h)
		if len(data.Absent) != 50 {
			t.Fatalf("absent: %+v", data.Absent)
		}
		late, resource := data.Absent[0], data.Absent[1]
		if late.Kind == "" {
			late, resource = resource, late
		}
		if late.Group != lateKind.Group || late.Kind != lateKind.Kind || len(late.Versions) != 1 || late.Versions[0] != lateKind.Version || late.Times < 20 {
			t.Errorf("asked for most: %+v", late)
		}
		if resource.Resource != "absents" || resource.Times < 20 || resource.Last == "" {
			t.Errorf("asked for second: %+v", resource)
		}
		named := false
		for _, r := range data.Reads {
			named = named || r.Part == "version" && r.Group == "example.com" && r.Version == "v1"
		}
		if !named {
			t.Errorf("no read names its version: %+v", data.Reads)
		}
		wantPage(t, h, "/", `"kind": "Late"`, `"resource": "absents"`)
		if lines := log.containing("\"looked up what is not served\" \"group\"=\"example.com\" \"versions\"=[\"v2\"] \"kind\"=\"Late\""); len(lines) != 20 {
			t.Errorf("logged: %q", lines)
		}
		if lines := log.containing("\"reason\"=\"version\" \"group\"=\"example.com\" \"version\"=\"v1\""); len(lines) == 0 {
			t.Error("no line names the version that is read")
		}
	})
}

// The HTML page does not grow with the kinds that are served.
func TestDebugPageIsSmall(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(300, 2, 10)...)
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		h := m.DebugHandler()
		readAll(t, m)
		synctest.Wait()
		if n := debugGet(t, h, "/", "text/html").Body.Len(); n > 16<<10 {
			t.Errorf("the page has %d bytes", n)
		}
		if n := debugGet(t, h, "/?format=json", "").Body.Len(); n < 100<<10 {
			t.Errorf("JSON has %d bytes", n)
		}
	})
}

func TestFleetDebug(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.new(t)
		wantServed(t, m, fooKind)
		defer f.join(t, "a", m)()
		defer f.join(t, `<b> & "c"`, f.new(t))()
		page := f.DebugHandler()

		wantPage(t, page, "/debug", `<a href="?cluster=a">a</a>`, `"kinds": 5,`,
			`<a href="?cluster=%3Cb%3E+%26+%22c%22">&lt;b&gt; &amp; &#34;c&#34;</a>`, `<a href="?format=json">`)
		var all struct {
			Clusters map[string]struct{ Kinds int }
		}
		if err := json.Unmarshal(debugGet(t, page, "/debug?format=json", "").Body.Bytes(), &all); err != nil {
			t.Fatal(err)
		}
		if len(all.Clusters) != 2 || all.Clusters["a"].Kinds != 5 {
			t.Errorf("as JSON: %+v", all)
		}

		wantPage(t, page, "/debug?cluster=a", `"cluster": "a"`, `"kinds": 5,`, `<a href="?cluster=a&amp;format=json">`)
		serve(f.server, newKind)
		time.Sleep(2 * time.Minute)
		wantPage(t, page, "/debug?cluster=a&format=json", `"cluster": "a"`, `"new.example.com/v1.New"`)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug?cluster=none", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("of a cluster that is not there: %d", w.Code)
		}
	})
}
