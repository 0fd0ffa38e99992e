// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// After a reset a group hangs. Lookups of kinds in other groups read it only if they
// search all groups. The first such lookup has to wait for it.
func TestResetWhileAGroupHangsBesidesTheAnswer(t *testing.T) {
	resets := map[string]func(*apiutil.DynamicRESTMapper){
		"all":   (*apiutil.DynamicRESTMapper).Reset,
		"group": func(m *apiutil.DynamicRESTMapper) { m.ResetGroup("example.com") },
	}
	for name, reset := range resets {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
				readAll(t, m)
				heal := server.SetFault(fakeapi.InGroup("example.com"), fakeapi.Timeout())
				reset(m)
				kindFor(t, m, "others")
				if took := kindFor(t, m, "others"); took > mostPatient {
					t.Errorf("a known kind takes %v while another group hangs", took)
				}
				if took := kindFor(t, m, "foos"); took > mostPatient {
					t.Errorf("a known kind of the group that hangs takes %v", took)
				}
				if name == "all" {
					return // the aggregated document settles it
				}
				heal()
				server.PutVersion("example.com", fakeVersion("v1", "New"))
				time.Sleep(time.Minute)
				if _, err := m.KindFor(schema.GroupVersionResource{Resource: "foos"}); err == nil {
					t.Error("the reset is forgotten: what went since is still mapped")
				}
			})
		})
	}
}

// mostPatient is for how long a lookup of something known waits for what hangs.
const mostPatient = 3 * time.Second

// kindFor looks up a resource in any group, and returns how long that takes.
func kindFor(t *testing.T, m *apiutil.DynamicRESTMapper, resource string) time.Duration {
	t.Helper()
	start := time.Now()
	if _, err := m.KindFor(schema.GroupVersionResource{Resource: resource}); err != nil {
		t.Errorf("%s: %v", resource, err)
	}
	return time.Since(start)
}
