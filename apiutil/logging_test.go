// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
