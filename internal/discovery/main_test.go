// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newClient(t *testing.T, server *fakeapi.Server) *Client {
	t.Helper()
	c, err := NewClient(server.Config(), server.Client(), Options{RequestTimeout: 10 * time.Second, MaxResponseBytes: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// everything reads all there is: the bulk document and, where that only lists
// versions, each of them.
func everything(t *testing.T, c *Client) *snapshot.Snapshot {
	t.Helper()
	bulk, err := c.Bulk(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s := new(snapshot.Snapshot).WithBulk(bulk.List, 0)
	if s.Aggregated() {
		return s
	}
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			table, served, err := c.Version(context.Background(), schema.GroupVersion{Group: g.Name(), Version: v.Name})
			switch {
			case err != nil:
				s = s.WithFailedVersion(g.Name(), v.Name, err)
			case !served:
				t.Errorf("%s/%s is listed and not served", g.Name(), v.Name)
			default:
				s = s.WithVersion(g.Name(), snapshot.Version{Name: v.Name, Table: table})
			}
		}
	}
	return s
}
