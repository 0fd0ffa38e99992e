// SPDX-License-Identifier: Apache-2.0

package share_test

import (
	"context"
	"fmt"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/reload"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// newReloader makes what is inside a mapper.
func newReloader(t *testing.T, cfg *rest.Config, client *http.Client) *reload.Reloader {
	t.Helper()
	return newNamed(t, cfg, client, "")
}

// newNamed makes what is inside a mapper with a name for SharedAs. Nobody sees
// through the transport of a server in memory.
func newNamed(t *testing.T, cfg *rest.Config, client *http.Client, as string) *reload.Reloader {
	t.Helper()
	options := discovery.Options{RequestTimeout: 10 * time.Second, MaxResponseBytes: 1 << 20, SharedAs: as}
	c, err := discovery.NewClient(cfg, client, options)
	if err != nil {
		t.Fatal(err)
	}
	return reload.New(c, &reload.Queue{}, reload.Options{UnhealthyAfter: time.Minute})
}

var names atomic.Int64

// uniqueName returns a name for SharedAs that no test has used before.
func uniqueName(t *testing.T) string { return fmt.Sprintf("%s %d ", t.Name(), names.Add(1)) }

// read reads everything and returns what is known then.
func read(t *testing.T, r *reload.Reloader) *snapshot.Snapshot {
	t.Helper()
	if err := r.ReadAll(context.Background()); err != nil {
		t.Fatal(err)
	}
	return r.Snapshot()
}

func requestsOf(server *fakeapi.Server) []string {
	var lines []string
	for _, r := range server.TakeRequests() {
		lines = append(lines, r.String())
	}
	return lines
}

func wantRequests(t *testing.T, server *fakeapi.Server, what string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, requestsOf(server)); diff != "" {
		t.Errorf("%s: requests (-want +got):\n%s", what, diff)
	}
}

var (
	bothRead      = []string{"GET /api  v2+protobuf 200", "GET /apis  v2+protobuf 200"}
	bothUnchanged = []string{"GET /api  304", "GET /apis  304"}
)

// routed leads requests to one of the servers behind a gateway, and says what is below it.
type routed struct {
	next http.RoundTripper
	to   string
}

func (rt *routed) RoundTrip(req *http.Request) (*http.Response, error) {
	req = req.Clone(req.Context())
	req.Header.Set("X-Cluster", rt.to)
	return rt.next.RoundTrip(req)
}

func (rt *routed) WrappedRoundTripper() http.RoundTripper { return rt.next }
