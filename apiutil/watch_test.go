// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// watchInBubble runs test in a bubble with a mapper that watches, started, and
// stops it.
func watchInBubble(
	t *testing.T, opts apiutil.DynamicRESTMapperOptions, prepare func(*watchServer),
	test func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper),
) {
	t.Helper()
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		watched := newWatchServer(server)
		if prepare != nil {
			prepare(watched)
		}
		opts.WatchAPIs = true
		m := newMapperThrough(t, server, watched, opts)
		stop := startMapper(t, m)
		test(t, server, watched, m)
		start := time.Now()
		stop()
		if took := time.Since(start); took > 0 {
			t.Errorf("Start returned %v after its context ended", took)
		}
		if m.Status().Watching {
			t.Error("watching after Start has returned")
		}
		synctest.Wait()
		for path, list := range watched.lists {
			if n := list.watches(); n != 0 {
				t.Errorf("%d watches left open at %s", n, path)
			}
		}
	})
}

// settled waits until what the watch has begun with is over.
func settled(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	time.Sleep(5 * time.Second)
	if !m.Status().Watching {
		t.Error("not watching")
	}
	server.TakeRequests()
}

// An event is answered within 1.4 s, once, and then four times more, for documents that lag.
// No kind is reported as gone without a live 404.
func TestEventIsAnsweredWithinSeconds(t *testing.T) {
	add := func(server *fakeapi.Server, list *watchedList) { serve(server, newKind); list.put("news") }
	for name, tt := range map[string]struct {
		before, change func(*fakeapi.Server, *watchedList)
		requests       []string
	}{
		"come": {func(*fakeapi.Server, *watchedList) {}, add, []string{"/api 304", "/apis 200"}},
		"change": {add, func(server *fakeapi.Server, list *watchedList) {
			server.PutVersion(newKind.Group, fakeVersion("v1", "New:cluster"))
			list.put("news")
		}, []string{"/api 304", "/apis 200"}},
		"going": {add, func(server *fakeapi.Server, list *watchedList) {
			server.Remove(newKind.Group)
			list.remove("news")
		}, []string{"/api 304", "/apis 200", "/apis/new.example.com/v1 404"}},
	} {
		for _, path := range []string{crdsPath, apiServicesPath} {
			what := name + " at " + path
			watchInBubble(t, apiutil.DynamicRESTMapperOptions{}, func(s *watchServer) {
				for n := range 100 {
					s.lists[path].put(fmt.Sprintf("old%d", n))
				}
			}, func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
				tt.before(server, watched.lists[path])
				synctest.Wait()
				if n := len(server.TakeRequests()); n != 2 {
					t.Errorf("%d discovery requests at the start, want those of one refresh", n)
				}
				time.Sleep(2 * time.Minute)
				settled(t, server, m)
				generation := m.Generation()
				tt.change(server, watched.lists[path])
				time.Sleep(1400 * time.Millisecond)
				wantRequests(t, server, what, tt.requests...)
				if m.Generation() == generation {
					t.Errorf("%s was not noticed", what)
				}
				time.Sleep(2 * time.Minute)
				requests := server.TakeRequests()
				if slices.ContainsFunc(requests, notUnchanged) || len(requests) != 8 {
					t.Errorf("in the 2 minutes after %s: %v; want 4 times two 304s", what, requests)
				}

				time.Sleep(24 * time.Hour)
				wantRequests(t, server, "a day without events")
			})
		}
	}
}

func notUnchanged(r fakeapi.Request) bool { return r.Code != http.StatusNotModified }

// If the program may not watch, or the resource is not served, one line for each resource
// names what is missing, and the mapper refreshes by interval. When the watch works, the
// mapper notices.
func TestRefusedWatchIsLoggedOnceAndTriedAgain(t *testing.T) {
	tests := map[string]struct {
		failure listFailure
		says    []string
	}{
		"may not list or watch": {listFailure{code: http.StatusForbidden}, []string{"ClusterRole", "list", "watch"}},
		"may not watch":         {listFailure{code: http.StatusForbidden, verb: "watch"}, []string{"ClusterRole", "list", "watch"}},
		"unauthorized":          {listFailure{code: http.StatusUnauthorized}, []string{"ClusterRole", "list", "watch"}},
		"no such resource":      {listFailure{code: http.StatusNotFound}, []string{"does not serve"}},
		"out of order":          {listFailure{code: http.StatusInternalServerError}, []string{"trying again"}},
		"not there":             {listFailure{refused: true}, []string{"trying again"}},
	}
	for name, tt := range tests {
		for _, path := range []string{crdsPath, apiServicesPath} {
			segments := strings.Split(path, "/")
			t.Run(name+"/"+segments[4], func(t *testing.T) {
				log, logger := newTestLog()
				opts := apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, Logger: logger}
				watchInBubble(t, opts, func(s *watchServer) { s.lists[path].setFailure(tt.failure) },
					func(t *testing.T, server *fakeapi.Server, watched *watchServer, m *apiutil.DynamicRESTMapper) {
						time.Sleep(10 * time.Minute)
						lines := log.containing("cannot watch")
						wantLine(t, lines, append(tt.says, "ERROR", segments[2], segments[4])...)
						if m.Status().Watching {
							t.Error("watching what it may not watch")
						}
						list := watched.lists[path]
						if n := list.count("list") + list.count("watch"); n < 10 || n > 150 {
							t.Errorf("%d tries in 10 minutes", n)
						}
						if n := len(server.TakeRequests()); n < 18 {
							t.Errorf("%d discovery requests in 10 minutes: the interval has stopped", n)
						}

						list.setFailure(listFailure{})
						time.Sleep(time.Minute) // the pauses are half of that
						wantWatching(t, server, list, m)

						// The next failure is logged again.
						list.setFailure(tt.failure)
						time.Sleep(5 * time.Minute)
						if lines := log.containing("cannot watch"); len(lines) != 2 {
							t.Errorf("%d lines after the second trouble, want 2: %q", len(lines), lines)
						}
						if m.Status().Watching {
							t.Error("watching in the second trouble")
						}
					})
			})
		}
	}
}

// wantWatching fails the test unless an event is answered soon.
func wantWatching(t *testing.T, server *fakeapi.Server, list *watchedList, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	settled(t, server, m)
	serve(server, newKind)
	list.put("news")
	time.Sleep(2400 * time.Millisecond) // 1.3 s, and one more if a refresh has just begun
	server.TakeRequests()
	wantServed(t, m, newKind)
	wantRequests(t, server, "what the watch has found")
}
