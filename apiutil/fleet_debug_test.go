// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

func TestFleetDebug(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		f := newFleetTest()
		m := f.new(t)
		wantServed(t, m, fooKind)
		defer f.join(t, "a", m)()
		defer f.join(t, `<b> & "c"`, f.new(t))()
		page := f.DebugHandler()

		list := debugGet(t, page, "/debug", "text/html").Body.String()
		for _, want := range []string{
			"<h1>RESTMappers by cluster</h1>", `<a href="?cluster=a">a</a>`, "3 groups, 5 kinds", "healthy",
			`<a href="?cluster=%3Cb%3E+%26+%22c%22">&lt;b&gt; &amp; &#34;c&#34;</a>`, `<a href="?format=json">`,
		} {
			if !strings.Contains(list, want) {
				t.Errorf("no %q in\n%s", want, list)
			}
		}
		var all struct {
			Clusters map[string]struct{ Kinds int }
		}
		if err := json.Unmarshal(debugGet(t, page, "/debug?format=json", "").Body.Bytes(), &all); err != nil {
			t.Fatal(err)
		}
		if len(all.Clusters) != 2 || all.Clusters["a"].Kinds != 5 {
			t.Errorf("as JSON: %+v", all)
		}

		one := debugGet(t, page, "/debug?cluster=a", "text/html").Body.String()
		for _, want := range []string{"<h1>RESTMapper of cluster a</h1>", "3 groups, 5 kinds", `<a href="?cluster=a&amp;format=json">`} {
			if !strings.Contains(one, want) {
				t.Errorf("no %q in\n%s", want, one)
			}
		}
		serve(f.server, newKind)
		time.Sleep(2 * time.Minute)
		recent := debugGet(t, page, "/debug?cluster=a&format=json", "").Body.String()
		for _, want := range []string{`"cluster": "a"`, `"new.example.com/v1.New"`} {
			if !strings.Contains(recent, want) {
				t.Errorf("no %q in\n%s", want, recent)
			}
		}
		w := httptest.NewRecorder()
		page.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/debug?cluster=none", nil))
		if w.Code != http.StatusNotFound {
			t.Errorf("of a cluster that is not there: %d", w.Code)
		}
	})
}

// Log lines of a mapper name its cluster.
func TestFleetLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		defer f.join(t, "a", f.new(t))()
		wantLine(t, log.containing("customresourcedefinitions"), "cannot watch for API changes", `"cluster"="a"`)
		f.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantLine(t, log.containing("API discovery fails"), `"cluster"="a"`)
	})
}

// If a mapper was for two clusters and one has gone, the log does not name that one.
func TestFleetLogOfSharedMapper(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		m := f.new(t)
		defer f.join(t, "a", m)()
		f.join(t, "b", m)()
		f.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantLine(t, log.containing("API discovery fails"), `"cluster"="a"`)
	})
}

// A mapper that was made and not engaged logs that.
func TestFleetForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		m := f.new(t)
		for range 10 {
			wantServed(t, m, fooKind)
			time.Sleep(time.Minute)
		}
		wantLine(t, log.containing("have no effect"), "engage its cluster in a Fleet")
	})
}
