// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
