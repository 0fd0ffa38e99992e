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
		read := func(reason string) string {
			return fmt.Sprintf(`V1 "msg"="reloaded API discovery" "reason"=%q `, reason)
		}
		const absent = `V1 "msg"="looked up what is not served" "group"=`
		for _, step := range []struct {
			what string
			do   func()
			want []string
		}{
			{"the first lookup", func() { wantServed(t, m, fooKind) }, []string{read("document")}},
			{"hits", func() { wantServed(t, m, fooKind, barKind, otherKind) }, nil},
			{"a miss", func() { wantAbsent(t, m, newKind) }, []string{read("version"), absent}},
			{"in a group", func() { _, _ = m.RESTMapping(schema.GroupKind{Group: fooKind.Group, Kind: "Absent"}) }, []string{read("version"), read("group"), absent}},
			{"in any group", func() { _, _ = m.KindFor(schema.GroupVersionResource{Resource: "absents"}) }, []string{read("document"), absent}},
			{"a reset", m.Reset, nil},
			{"a lookup after it", func() { wantServed(t, m, fooKind) }, []string{read("document")}},
		} {
			step.do()
			synctest.Wait()
			lines := log.take("")
			if !slices.EqualFunc(lines, step.want, strings.HasPrefix) {
				t.Errorf("%s: %q; want %q", step.what, lines, step.want)
			}
		}
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
