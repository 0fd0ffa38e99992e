// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
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
			`"consecutiveFailures":4,"unhealthySince":"2026-11-21T10:30:00Z","watching":true,` +
			`"lastError":"it \"failed\"","failedGroupVersions":{"apps/v1":"down","v1":"gone"}}`: {
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
	RefreshInterval    string
	WatchAPIs, Started bool
	Log                map[string][]debugLine
	Kinds              []struct {
		GroupVersion, Kind, Resource, Scope string
		Verbs                               []string
	}
	Unread []string
}

// debugLine is a line of any message.
type debugLine struct {
	Time, Reason, Group, Version, Duration, Error string
	Versions                                      []string
	Kind, Resource                                string
	Generation                                    uint64
	Added, Removed, Changed                       []string
}

func (d debugJSON) reads() []debugLine   { return d.Log["reloaded API discovery"] }
func (d debugJSON) misses() []debugLine  { return d.Log["looked up what is not served"] }
func (d debugJSON) changes() []debugLine { return d.Log["served APIs changed"] }

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
		if len(empty.Kinds)+len(empty.Log) > 0 || empty.Log == nil || len(server.TakeRequests()) > 0 {
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
		if data.Status.Groups != 4 || data.RefreshInterval != "1m0s" || data.Started {
			t.Errorf("status %+v, interval %s, started %t", data.Status, data.RefreshInterval, data.Started)
		}
		if data.Status.FailedGroupVersions["new.example.com/v1"] == "" {
			t.Errorf("failed: %q", data.Status.FailedGroupVersions)
		}
		if diff := cmp.Diff([]string{"new.example.com/v1"}, data.Unread); diff != "" {
			t.Errorf("unread (-want +got):\n%s", diff)
		}
		kinds := map[string]string{}
		for _, k := range data.Kinds {
			kinds[k.GroupVersion+" "+k.Kind] = k.Resource + " " + k.Scope
		}
		if len(data.Kinds) != data.Status.Kinds || kinds["example.com/v1 Foo"] != "foos root" || len(data.Kinds[0].Verbs) == 0 {
			t.Errorf("kinds: %+v", data.Kinds)
		}
		reads := data.reads()
		if len(reads) < 2 || reads[0].Time < reads[len(reads)-1].Time || reads[0].Reason == "" || reads[0].Error == "" {
			t.Errorf("reads: %+v", reads)
		}
		if changes := data.changes(); len(changes) == 0 || changes[0].Generation < changes[len(changes)-1].Generation {
			t.Errorf("changes: %+v", changes)
		}
	})
}

// The number of kept lines is bounded. Nothing is kept from before the page is mounted.
func TestDebugKeepsTheLatest(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		serve(server, newKind)
		wantServed(t, m, newKind)
		synctest.Wait()
		h := m.DebugHandler()
		if data := debugData(t, h); len(data.Log) > 0 {
			t.Errorf("from before: %+v", data)
		}
		for i := range 120 {
			kind := "Foo"
			if i%2 == 1 {
				kind = "Foo:cluster"
			}
			server.PutVersion("example.com", fakeVersion("v1", kind))
			readAll(t, m)
			wantAbsent(t, m, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: fmt.Sprint("Absent", i)})
			synctest.Wait()
		}
		data := debugData(t, h)
		if len(data.reads()) != 50 || len(data.misses()) != 50 || len(data.changes()) != 50 {
			t.Fatalf("%d reads, %d misses, %d changes", len(data.reads()), len(data.misses()), len(data.changes()))
		}
		if diff := cmp.Diff([]string{"example.com/v1.Foo"}, data.changes()[0].Changed); diff != "" {
			t.Errorf("the latest change (-want +got):\n%s", diff)
		}
		if latest := data.misses()[0]; latest.Kind != "Absent119" {
			t.Errorf("the latest miss: %+v", latest)
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
		wantPage(t, h, "/", "<!doctype html>", "example.com", `"refreshInterval": "1h0m0s"`, `"started": false`, `\u003cscript\u003e`, "</html>")
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

// The page and the log say by name what is read, and what lookups do not find.
func TestDebugNames(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Hour, Logger: logger})
		h := m.DebugHandler()
		for range 2 { // the second is answered from memory
			wantAbsent(t, m, lateKind)
			_, _ = m.KindFor(schema.GroupVersionResource{Resource: "absents"})
		}
		data := debugData(t, h)
		misses := data.misses()
		if len(misses) != 4 {
			t.Fatalf("misses: %+v", misses)
		}
		resource, late := misses[0], misses[1]
		if late.Group != lateKind.Group || late.Kind != lateKind.Kind || len(late.Versions) != 1 || late.Versions[0] != lateKind.Version {
			t.Errorf("by kind: %+v", late)
		}
		if resource.Resource != "absents" || resource.Kind != "" {
			t.Errorf("by resource: %+v", resource)
		}
		named := func(r debugLine) bool { return r.Reason == "version" && r.Group == "example.com" && r.Version == "v2" }
		if !slices.ContainsFunc(data.reads(), named) {
			t.Errorf("no read names its version: %+v", data.reads())
		}
		wantPage(t, h, "/", `"kind": "Late"`, `"resource": "absents"`)
		if lines := log.containing("\"looked up what is not served\" \"group\"=\"example.com\" \"versions\"=[\"v2\"] \"kind\"=\"Late\""); len(lines) != 2 {
			t.Errorf("logged: %q", lines)
		}
		if lines := log.containing("\"reason\"=\"version\" \"group\"=\"example.com\" \"version\"=\"v2\""); len(lines) == 0 {
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

		wantPage(t, page, "/debug", `"a": {`, `"\u003cb\u003e \u0026 \"c\"": {`, `"kinds": 5,`)
		var all struct {
			Clusters map[string]struct{ Kinds int }
		}
		if err := json.Unmarshal(debugGet(t, page, "/debug?format=json", "").Body.Bytes(), &all); err != nil {
			t.Fatal(err)
		}
		if len(all.Clusters) != 2 || all.Clusters["a"].Kinds != 5 {
			t.Errorf("as JSON: %+v", all)
		}

		wantPage(t, page, "/debug?cluster=a", `"status": {`, `"kinds": 5,`)
		serve(f.server, newKind)
		time.Sleep(2 * time.Minute)
		wantPage(t, page, "/debug?cluster=a&format=json", `"new.example.com/v1.New"`, `"resource": "news"`)
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug?cluster=none", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("of a cluster that is not there: %d", w.Code)
		}
	})
}
