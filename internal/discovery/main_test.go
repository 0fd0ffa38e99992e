// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"testing"
	"time"

	"go.uber.org/goleak"

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

// everything reads all there is: the document and, where that only lists versions,
// each of them.
func everything(t *testing.T, c *Client) *snapshot.Snapshot {
	t.Helper()
	bulk, err := c.Document(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	s := new(snapshot.Snapshot).WithDocument(bulk, 1)
	if s.Aggregated() {
		return s
	}
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			table, err := c.Version(context.Background(), g.Name(), v.Name)
			switch {
			case err != nil:
				s = s.WithVersion(g.Name(), v.Name, snapshot.Found{Err: err}, 2, 3, s)
			case table == nil:
				t.Errorf("%s/%s is listed and not served", g.Name(), v.Name)
			default:
				s = s.WithVersion(g.Name(), v.Name, snapshot.Found{Table: table}, 2, 3, s)
			}
		}
	}
	return s
}
