// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// requestsOf forgets the requests and returns what they were.
func requestsOf(server *fakeapi.Server) (lines []string) {
	for _, r := range server.TakeRequests() {
		lines = append(lines, r.String())
	}
	return lines
}

// A ping is as cheap as may be, and leaves nothing behind: the read that follows
// is as if there had been none.
func TestPing(t *testing.T) {
	ctx := context.Background()
	for name, test := range map[string]struct {
		forms                  fakeapi.Forms
		first, known, followed []string
	}{
		"aggregated": {fakeapi.Aggregated(), []string{"GET /api  v2+protobuf 200"}, []string{"GET /api  304"}, []string{"GET /api  v2+protobuf 200", "GET /apis  304"}},
		"legacy":     {fakeapi.Legacy(), []string{"GET /api  legacy 200"}, []string{"GET /api  legacy 200"}, []string{"GET /api  legacy 200", "GET /apis  legacy 200"}},
	} {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		server.SetForms(test.forms)
		c := newClient(t, server)
		ping := func(when string, want []string) {
			t.Helper()
			if err := c.Ping(ctx); err != nil {
				t.Errorf("%s, %s: %v", name, when, err)
			}
			if diff := cmp.Diff(want, requestsOf(server)); diff != "" {
				t.Errorf("%s, %s: requests (-want +got):\n%s", name, when, diff)
			}
		}
		ping("at first", test.first)
		before := everything(t, c)
		requestsOf(server)
		ping("known", test.known)
		server.PutVersion("", fakeapi.Version{Name: "v2"})
		ping("changed", test.first)
		after := everything(t, c)
		if diff := cmp.Diff(test.followed, requestsOf(server)[:2]); diff != "" {
			t.Errorf("%s: the read after it (-want +got):\n%s", name, diff)
		}
		if before.Group("").Version("v2") != nil || after.Group("").Version("v2") == nil {
			t.Errorf("%s: what was read before and after the change is wrong", name)
		}
	}
}

// Only what the server itself says counts as its answer.
func TestPingFails(t *testing.T) {
	for _, fault := range []fakeapi.Fault{
		fakeapi.Refused(), fakeapi.Timeout(), fakeapi.Truncated(), fakeapi.LoginPage(), fakeapi.StatusText(404), fakeapi.Status(404, 0),
		fakeapi.Status(401, 0), fakeapi.Status(503, 0), fakeapi.WrongKind(), fakeapi.EmptyObject(), fakeapi.Huge(16 << 20),
	} {
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		c, err := NewClient(server.Config(), server.Client(), Options{RequestTimeout: 10 * time.Millisecond, MaxResponseBytes: 8 << 20})
		if err != nil {
			t.Fatal(err)
		}
		for _, when := range []string{"at first", "known"} {
			server.SetFault(fakeapi.All(), fault)
			var failed *Error
			if err := c.Ping(context.Background()); !errors.As(err, &failed) || failed.Path != "/api" {
				t.Errorf("%s, %s: %v", fault, when, err)
			}
			server.ClearFaults()
			everything(t, c)
			if err := c.Ping(context.Background()); err != nil {
				t.Errorf("%s, healed: %v", fault, err)
			}
		}
	}
}

// A server that only extends another one has no core group, and answers all the same.
func TestPingWithoutCoreGroup(t *testing.T) {
	server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
	server.SetFault(fakeapi.At("/api"), fakeapi.Status(404, 0))
	c := newClient(t, server)
	everything(t, c)
	if err := c.Ping(context.Background()); err != nil {
		t.Error(err)
	}
}

// After each two versions in a row that are silent the server itself is asked,
// once. Only if it is silent too are the rest given up.
func TestSilentVersions(t *testing.T) {
	for name, test := range map[string]struct {
		silent []int // versions; 0 is the server itself
		want   string
	}{
		"one":                    {[]int{1}, "1 2 3 4 5 6"},
		"one, and one more":      {[]int{1, 3}, "1 2 3 4 5 6"},
		"two":                    {[]int{1, 2}, "1 2 api 3 4 5 6"},
		"the last two":           {[]int{5, 6}, "1 2 3 4 5 6"},
		"three":                  {[]int{1, 2, 3}, "1 2 api 3 4 5 6"},
		"four":                   {[]int{1, 2, 3, 4}, "1 2 api 3 4 api 5 6"},
		"two, and the server":    {[]int{2, 3, 0}, "1 2 3 api"},
		"everything, from the 4": {[]int{4, 5, 6, 0}, "1 2 3 4 5 api"},
	} {
		server := fakeapi.New()
		var gvs []schema.GroupVersion
		paths := map[string]string{"/api": "api"}
		for i := range 6 {
			gv := schema.GroupVersion{Group: "example.com", Version: fmt.Sprintf("v%d", i+1)}
			server.PutVersion(gv.Group, fakeapi.Version{Name: gv.Version})
			gvs = append(gvs, gv)
			paths["/apis/"+gv.String()] = fmt.Sprint(i + 1)
		}
		server.PutVersion("", fakeapi.Version{Name: "v1"})
		server.SetFault(func(req *http.Request) bool {
			number := 0
			_, _ = fmt.Sscan(paths[req.URL.Path], &number)
			return slices.Contains(test.silent, number)
		}, fakeapi.Refused())
		failed, gone := 0, 0
		newClient(t, server).Versions(context.Background(), gvs, func(_ schema.GroupVersion, _ *snapshot.Table, _ bool, err error) {
			if failed++; err == nil {
				failed--
			}
			if errors.Is(err, errGone) {
				gone++
			}
		})
		got, versions := "", 0
		for _, r := range server.TakeRequests() {
			got += " " + paths[r.Path]
			if r.Path != "/api" {
				versions++
			}
		}
		if got != " "+test.want || gone != len(gvs)-versions || failed < gone {
			t.Errorf("%s: requests%s, %d failed, %d given up", name, got, failed, gone)
		}
	}
}
