// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Half a document is read with one request. It leaves the other half as it was,
// and the next read of that asks only whether it has changed.
func TestHalves(t *testing.T) {
	for name, test := range map[string]struct {
		forms                fakeapi.Forms
		core, named, changed string
		rest                 string
	}{
		"aggregated": {fakeapi.Aggregated(), "GET /api  304", "GET /apis  304", "GET /api  v2+protobuf 200", "GET /apis  304"},
		"legacy":     {fakeapi.Legacy(), "GET /api  legacy 200", "GET /apis  legacy 200", "GET /api  legacy 200", "GET /apis  legacy 200"},
	} {
		t.Run(name, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
			server.SetForms(test.forms)
			c := newClient(t, server)
			read := func(halves Halves, want ...string) *Bulk {
				t.Helper()
				server.TakeRequests()
				bulk, err := c.Document(context.Background(), halves)
				if err != nil {
					t.Fatal(err)
				}
				var got []string
				for _, r := range server.TakeRequests() {
					got = append(got, r.String())
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("requests (-want +got):\n%s", diff)
				}
				return bulk
			}
			first, err := c.Document(context.Background(), whole)
			if err != nil {
				t.Fatal(err)
			}
			core, named := read(Halves{Core: true}, test.core), read(Halves{Named: true}, test.named)
			if name == "aggregated" && (core != first || named != first) {
				t.Error("an unchanged half makes another document")
			}
			server.PutVersion("", fakeapi.Version{Name: "v9"})
			next := read(Halves{Core: true}, test.changed)
			if got := len(next.Core.Groups[0].Versions()); got != 2 || len(next.Named.Groups) != len(first.Named.Groups) {
				t.Errorf("%d versions of the core group, and %d groups, not %d", got, len(next.Named.Groups), len(first.Named.Groups))
			}
			read(Halves{Named: true}, test.rest)
		})
	}
}

// Unanswered tells a read without an answer from a read that was answered with an error.
func TestUnanswered(t *testing.T) {
	for _, test := range []struct {
		fault fakeapi.Fault
		want  bool
	}{
		{fakeapi.Refused(), true}, {fakeapi.Status(503, 0), false}, {fakeapi.Status(401, 0), false}, {fakeapi.Empty(404), false},
	} {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		server.SetFault(fakeapi.All(), test.fault)
		_, err := newClient(t, server).Version(context.Background(), "g0001.example.com", "v1")
		if err == nil || Unanswered(err) != test.want {
			t.Errorf("%s: unanswered %v: %v", test.fault, Unanswered(err), err)
		}
	}
	err := NotAsked(schema.GroupVersion{Group: "a.example.com", Version: "v1"})
	var failed *Error
	if !errors.As(err, &failed) || failed.Path != "/apis/a.example.com/v1" || !Unanswered(err) {
		t.Errorf("not asked: %v", err)
	}
}
