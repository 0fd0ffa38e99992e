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
	return readLive(t, c, s)
}

// readLive reads each list and each version of a snapshot.
func readLive(t *testing.T, c *Client, s *snapshot.Snapshot) *snapshot.Snapshot {
	t.Helper()
	for _, g := range s.Groups() {
		versions, preferred, _, err := c.List(context.Background(), g.Name())
		if err != nil || len(versions) != len(g.Versions()) {
			t.Errorf("group %q: versions %q, %v", g.Name(), versions, err)
			continue
		}
		s = s.WithList(g.Name(), versions, preferred, 2, s)
		for _, name := range versions {
			table, _, err := c.Version(context.Background(), g.Name(), name)
			if table == nil && err == nil {
				t.Errorf("%s/%s is listed and not served", g.Name(), name)
			}
			s = s.WithVersion(g.Name(), name, snapshot.Found{Table: table, Err: err}, 2, s)
		}
	}
	return s
}
