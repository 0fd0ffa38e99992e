// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// newReloader makes a reloader of a fake server.
func newReloader(t *testing.T, server *fakeapi.Server) *Reloader {
	t.Helper()
	return newReloaderWith(t, server, Options{})
}

func newReloaderWith(t *testing.T, server *fakeapi.Server, options Options) *Reloader {
	t.Helper()
	client, err := discovery.NewClient(server.Config(), server.Client(), discovery.Options{
		RequestTimeout: 30 * time.Second, MaxResponseBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, options)
}

// find looks for a kind and returns the version that it is found in.
func find(ctx context.Context, r *Reloader, group, kind string, versions ...string) (string, error) {
	gk := schema.GroupKind{Group: group, Kind: kind}
	if m, current, _ := r.Snapshot().RESTMapping(gk, versions); current {
		return m.GroupVersionKind.Version, nil
	}
	found := r.Lookup(ctx, snapshot.KindQuery(gk, versions), func(s *snapshot.Snapshot) (known, current bool) {
		_, current, err := s.RESTMapping(gk, versions)
		return err == nil, current
	})
	m, _, err := found.Snapshot.RESTMapping(gk, versions)
	switch {
	case err == nil:
		return m.GroupVersionKind.Version, nil
	case found.Err != nil:
		return "", found.Err
	case len(found.Failed) > 0:
		return "", fmt.Errorf("failed: %v", found.Failed)
	}
	return "", err
}

// chaos is a server that changes under lookups, resets and refreshes. In each of its
// groups v1 always serves Keep; all else comes and goes, and connections fail.
type chaos struct {
	server *fakeapi.Server
	r      *Reloader
}

const chaosGroups = 4

func chaosGroup(n int) string { return fmt.Sprintf("g%d.example.com", n%chaosGroups) }

func resource(kind string) fakeapi.Resource {
	singular := strings.ToLower(kind)
	return fakeapi.Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true}
}

// change makes one change to the server.
func (c *chaos) change(rnd *rand.Rand) {
	group, version := chaosGroup(rnd.IntN(chaosGroups)), fmt.Sprintf("v%d", 1+rnd.IntN(3))
	switch rnd.IntN(8) {
	case 0:
		if version != "v1" {
			c.server.RemoveVersion(group, version)
		}
	case 1:
		c.server.SetForms([]fakeapi.Forms{fakeapi.Aggregated(), fakeapi.V2Beta1Only(), fakeapi.Legacy()}[rnd.IntN(3)])
	case 2:
		fault := []fakeapi.Fault{fakeapi.Refused(), fakeapi.Status(503, 0), fakeapi.TruncatedClean(), fakeapi.LoginPage()}[rnd.IntN(4)]
		match := []string{"/api", "/apis", "/apis/" + group, "/apis/" + group + "/v2", "/apis/" + group + "/v3"}[rnd.IntN(5)]
		c.server.SetFault(fakeapi.At(match), fakeapi.Times(1+rnd.IntN(3), fault))
	default:
		v := fakeapi.Version{Name: version}
		if version == "v1" {
			v.Resources = append(v.Resources, resource("Keep"))
		}
		for _, kind := range []string{"Alpha", "Beta", "Gamma"} {
			if rnd.IntN(2) == 0 {
				v.Resources = append(v.Resources, resource(kind))
			}
		}
		c.server.PutVersion(group, v)
	}
}

// use does one of the things that the users of a reloader do.
func (c *chaos) use(t *testing.T, rnd *rand.Rand) {
	ctx := context.Background()
	group, version := chaosGroup(rnd.IntN(chaosGroups)), fmt.Sprintf("v%d", 1+rnd.IntN(3))
	kind := []string{"Alpha", "Beta", "Gamma", "Absent"}[rnd.IntN(4)]
	switch rnd.IntN(12) {
	case 0:
		c.r.Reset()
	case 1:
		c.r.ResetGroup(group)
	case 2:
		_ = c.r.Refresh(ctx)
	case 3:
		c.r.Lookup(ctx, snapshot.Query{ByResource: true, Name: "absents"}, notFound)
	case 4:
		_ = c.r.RefreshGroups(ctx, []string{group})
	case 5, 6:
		_, _ = find(ctx, c.r, group, kind)
	case 7, 8:
		_, _ = find(ctx, c.r, group, kind, version)
	default:
		versions := [][]string{nil, {"v1"}, {"v2", "v1"}}[rnd.IntN(3)]
		if _, err := find(ctx, c.r, group, "Keep", versions...); meta.IsNoMatchError(err) {
			t.Errorf("Keep of %s in %q: %v", group, versions, err)
		}
	}
}

// Whatever happens at once: what is always served is never absent, and once it is quiet the mapper knows exactly what the server serves.
func TestWhatIsAlwaysServedIsNeverAbsent(t *testing.T) {
	for _, forms := range []fakeapi.Forms{fakeapi.Aggregated(), fakeapi.Legacy()} {
		c := &chaos{server: fakeapi.New(fakeapi.Typical(0, 0, 0)...)}
		for n := range chaosGroups {
			c.server.PutVersion(chaosGroup(n), fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Keep")}})
		}
		c.server.SetForms(forms)
		c.r = newReloader(t, c.server)
		defer c.r.KeepAll()()
		var users sync.WaitGroup
		for n := range 6 {
			users.Add(1)
			go func() {
				defer users.Done()
				rnd := rand.New(rand.NewPCG(uint64(n), 1))
				for range 60 {
					if n == 0 {
						c.change(rnd)
					}
					c.use(t, rnd)
				}
			}()
		}
		users.Wait()
		c.server.ClearFaults()
		c.r.Reset()
		fresh := newReloader(t, c.server)
		defer fresh.KeepAll()()
		for _, r := range []*Reloader{c.r, fresh} {
			for range 2 { // the second reads what only a list has
				if err := r.Refresh(context.Background()); err != nil {
					t.Fatal(err)
				}
			}
		}
		if changes := snapshot.Diff(c.r.Snapshot(), fresh.Snapshot()); len(changes) > 0 {
			t.Errorf("in the end %v", changes)
		}
		if got, want := groupNames(c.r.Snapshot()), groupNames(fresh.Snapshot()); !slices.Equal(got, want) {
			t.Errorf("groups %q, not %q", got, want)
		}
	}
}

func groupNames(s *snapshot.Snapshot) (names []string) {
	for _, g := range s.Groups() {
		names = append(names, g.Name())
	}
	return names
}

func notFound(*snapshot.Snapshot) (known, current bool) { return false, false }
