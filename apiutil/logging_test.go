// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A change of the served API is logged with what came, went and changed: in one line
// if one read has found it.
func TestLogOfChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		synctest.Wait()
		if lines := log.take("INFO"); len(lines) != 0 {
			t.Errorf("at the first read: %q", lines)
		}
		server.PutVersion("example.com", fakeVersion("v1", "Foo:cluster", "Baz"))
		server.Remove(otherKind.Group)
		readAll(t, m)
		synctest.Wait()
		lines := log.take("INFO")
		wantLogged(t, lines, "added", "example.com/v1.Baz")
		wantLogged(t, lines, "removed", "example.com/v1.Bar", "other.example.com/v1.Other")
		wantLogged(t, lines, "changed", "example.com/v1.Foo")
		wantLine(t, lines[len(lines)-1:], "served APIs changed", fmt.Sprintf(`"generation"=%d`, m.Generation()))

		serve(server, newKind)
		wantServed(t, m, newKind)
		synctest.Wait()
		wantLine(t, log.take("INFO"), `"added"=["new.example.com/v1.New"]`)
		readAll(t, m)
		synctest.Wait()
		if lines := log.take("INFO"); len(lines) != 0 {
			t.Errorf("nothing has changed: %q", lines)
		}
		server.Remove(newKind.Group)
		m.Reset()
		wantAbsent(t, m, newKind)
		synctest.Wait()
		wantLine(t, log.take("INFO"), `"removed"=["new.example.com/v1.New"]`)
	})
}

// wantLogged fails the test unless the lines together, each of which may tell of some
// of the changes, name these under key, in whatever order, and no others.
func wantLogged(t *testing.T, lines []string, key string, want ...string) {
	t.Helper()
	var got []string
	for _, line := range lines {
		_, list, _ := strings.Cut(line, `"`+key+`"=[`)
		list, _, _ = strings.Cut(list, "]")
		got = append(got, strings.Fields(strings.ReplaceAll(list, `"`, ""))...)
	}
	slices.Sort(got)
	if len(lines) == 0 || !slices.Equal(got, want) {
		t.Errorf("%s: %q; want %q in:\n%s", key, got, want, strings.Join(lines, "\n"))
	}
}

// If very much has changed, the line names a part of it.
func TestLogOfManyChanges(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		server.SetGroups(fakeapi.Typical(500, 1, 5)...)
		readAll(t, m)
		synctest.Wait()
		lines := log.take("INFO")
		wantLine(t, []string{strings.Join(lines, "\n")}, "g0001.example.com/v1", "and more", `"other.example.com/v1.Other"`)
		for _, line := range lines {
			if len(line) > 2000 {
				t.Errorf("a line of %d bytes", len(line))
			}
		}
	})
}

// Reloads are logged at level 1 with their reason, which is what was read. Of lookups only
// those that find nothing are logged.
func TestLogOfReloads(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger, RefreshInterval: time.Minute})
		server.SetLatency(100 * time.Millisecond) // so that a line is written before the next read is over
		want := func(what string, reasons ...string) {
			t.Helper()
			synctest.Wait()
			lines := log.take("")
			if len(lines) != len(reasons) {
				t.Errorf("%s: %q; want reasons %q", what, lines, reasons)
				return
			}
			for i, reason := range reasons {
				if reason == "absent" {
					wantLine(t, lines[i:i+1], `V1 "msg"="looked up what is not served"`, `"group"=`, `"versions"=`)
					continue
				}
				wantLine(t, lines[i:i+1], `V1 "msg"="reloaded API discovery"`, fmt.Sprintf(`"reason"=%q`, reason), `"duration"=`, `"error"=`)
			}
		}
		wantServed(t, m, fooKind)
		want("the first lookup", "document")
		wantServed(t, m, fooKind, barKind, otherKind)
		want("hits")
		wantAbsent(t, m, newKind)
		want("a miss", "version", "absent")
		_, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"})
		want("a miss without a version", "version", "group", "absent")
		_, _ = m.KindFor(schema.GroupVersionResource{Resource: "absents"})
		want("a miss in any group", "document", "absent")
		m.Reset()
		want("a reset")
		wantServed(t, m, fooKind)
		want("a lookup after a reset", "document")
		stop := startMapper(t, m)
		time.Sleep(time.Second)
		want("a refresh", "document")
		stop()
		want("the end")
	})
}

func withoutVerbose(lines []string) []string {
	var rest []string
	for _, line := range lines {
		if !strings.HasPrefix(line, "V1") {
			rest = append(rest, line)
		}
	}
	return rest
}

func TestUnstartedWarning(t *testing.T) {
	for name, test := range map[string]struct {
		options apiutil.DynamicRESTMapperOptions
		start   bool
		want    int
	}{
		"interval":          {apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Hour}, false, 1},
		"watch":             {apiutil.DynamicRESTMapperOptions{WatchAPIs: true}, false, 1},
		"interval, started": {apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Hour}, true, 0},
		"neither":           {apiutil.DynamicRESTMapperOptions{}, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				log, logger := newTestLog()
				test.options.Logger = logger
				m := newMapper(t, server, test.options)
				if test.start {
					defer startMapper(t, m)()
				}
				warnings := func() int {
					synctest.Wait()
					n := 0
					for _, line := range log.take("INFO") {
						if strings.Contains(line, "Start was not called") {
							n++
						}
					}
					return n
				}
				for range 5 {
					readAll(t, m)
					time.Sleep(10 * time.Second)
				}
				if n := warnings(); n > 0 {
					t.Errorf("%d warnings in the first minute", n)
				}
				for range 5 {
					time.Sleep(time.Minute)
					readAll(t, m)
				}
				if n := warnings(); n != test.want {
					t.Errorf("%d warnings, want %d", n, test.want)
				}
			})
		})
	}
}

// A mapper that knows which kinds are in use logs a line when one of them changes, also if
// it was gone meanwhile. Changes of others are logged at level 1.
func TestLogOfKindsInUse(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		log, logger := newTestLog()
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{Logger: logger})
		readAll(t, m)
		m.Use(fooKind)
		m.Use(fooKind)
		change := func(kinds ...string) []string {
			t.Helper()
			server.PutVersion(fooKind.Group, fakeVersion(fooKind.Version, kinds...))
			readAll(t, m)
			synctest.Wait()
			return log.take("INFO")
		}
		for _, kinds := range [][]string{{"Foo", "Bar", "Baz"}, {"Bar"}, {"Foo", "Bar"}} {
			if lines := change(kinds...); len(lines) > 0 {
				t.Errorf("%q: logged %q", kinds, lines)
			}
		}
		change("Bar")
		lines := change("Foo:cluster", "Bar")
		wantLine(t, lines, "the mapping of a kind in use has changed", `"oldScope"="namespace"`, `"scope"="root"`, `"resource"="foos"`)
		if lines := change("Foo:cluster", "Bar"); len(lines) > 0 {
			t.Errorf("nothing has changed: %q", lines)
		}
	})
}
