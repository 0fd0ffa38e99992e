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

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// A chaos is a server that changes under lookups, resets and refreshes. In each
// of its groups v1 always serves Keep; all else comes and goes, connections fail,
// versions go stale, and the server is upgraded and downgraded.
type chaos struct {
	server *fakeapi.Server
	r      *Reloader
}

const (
	chaosGroups = 4
	chaosRounds = 150
)

func chaosGroup(n int) string { return fmt.Sprintf("g%d.example.com", n%chaosGroups) }

func chaosVersion(rnd *rand.Rand, name string) fakeapi.Version {
	v := fakeapi.Version{Name: name, Stale: rnd.IntN(6) == 0}
	if name == "v1" {
		v.Resources = append(v.Resources, resource("Keep", true))
	}
	for _, kind := range []string{"Alpha", "Beta", "Gamma"} {
		if rnd.IntN(2) == 0 {
			v.Resources = append(v.Resources, resource(kind, rnd.IntN(2) == 0))
		}
	}
	return v
}

func resource(kind string, namespaced bool) fakeapi.Resource {
	singular := strings.ToLower(kind)
	return fakeapi.Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: namespaced}
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
		fault := []fakeapi.Fault{
			fakeapi.Refused(), fakeapi.Status(503, 0), fakeapi.TruncatedClean(), fakeapi.LoginPage(), fakeapi.EmptyObject(),
		}[rnd.IntN(5)]
		match := []string{"/api", "/apis", "/apis/" + group, "/apis/" + group + "/" + version}[rnd.IntN(4)]
		c.server.SetFault(fakeapi.At(match), fakeapi.Times(1+rnd.IntN(3), fault))
	default:
		c.server.PutVersion(group, chaosVersion(rnd, version))
	}
}

// mapping is what package apiutil does with the reloader, for one kind.
func mapping(r *Reloader, gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	if m, settled, err := r.Snapshot().RESTMapping(gk, versions); settled {
		return m, err
	}
	q := snapshot.Query{Group: gk.Group, Versions: versions, Name: gk.Kind}
	found := r.Lookup(context.Background(), q, func(s *snapshot.Snapshot) (known, settled bool) {
		_, settled, err := s.RESTMapping(gk, versions)
		return err == nil, settled
	})
	m, _, err := found.Snapshot.RESTMapping(gk, versions)
	switch {
	case err == nil:
		return m, nil
	case found.Err != nil:
		return nil, found.Err
	case len(found.Failed) > 0:
		return nil, fmt.Errorf("failed: %v", found.Failed)
	default:
		return nil, err
	}
}

// use does one of the things that the users of a reloader do.
func (c *chaos) use(t *testing.T, rnd *rand.Rand) {
	group, version := chaosGroup(rnd.IntN(chaosGroups)), fmt.Sprintf("v%d", 1+rnd.IntN(3))
	kind := []string{"Alpha", "Beta", "Gamma", "Absent"}[rnd.IntN(4)]
	switch rnd.IntN(12) {
	case 0:
		c.r.Reset()
	case 1:
		c.r.ResetGroup(group)
	case 2:
		_ = c.r.Refresh(context.Background())
	case 3:
		c.r.Lookup(context.Background(), snapshot.Query{ByResource: true, Name: "absents"}, func(*snapshot.Snapshot) (bool, bool) { return false, false })
	case 4, 5:
		_, _ = mapping(c.r, schema.GroupKind{Group: group, Kind: kind})
	case 6, 7:
		_, _ = mapping(c.r, schema.GroupKind{Group: group, Kind: kind}, version)
	case 8:
		_, _ = mapping(c.r, schema.GroupKind{Group: group, Kind: kind}, "v3", "v2")
	default:
		versions := [][]string{nil, {"v1"}, {"v2", "v1"}}[rnd.IntN(3)]
		m, err := mapping(c.r, schema.GroupKind{Group: group, Kind: "Keep"}, versions...)
		if err != nil || m.Resource.Resource != "keeps" {
			t.Errorf("Keep of %s in %q: %v, %v", group, versions, m, err)
		}
	}
}

// Whatever happens at once: what is always served is always found, every snapshot
// is sound, and once it is quiet the mapper knows exactly what the server serves.
func TestChaos(t *testing.T) {
	for _, forms := range []fakeapi.Forms{fakeapi.Aggregated(), fakeapi.Legacy()} {
		c := &chaos{server: fakeapi.New(fakeapi.Group{Versions: []fakeapi.Version{{Name: "v1", Resources: []fakeapi.Resource{resource("Pod", true)}}}})}
		for n := range chaosGroups {
			c.server.PutVersion(chaosGroup(n), fakeapi.Version{Name: "v1", Resources: []fakeapi.Resource{resource("Keep", true)}})
		}
		c.server.SetForms(forms)
		c.r = newReloader(t, c.server)
		if err := c.r.ReadAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		c.run(t)
		c.settle(t)
	}
}

func (c *chaos) run(t *testing.T) {
	var wg sync.WaitGroup
	for n := range 6 {
		wg.Add(1)
		go func() {
			defer wg.Done()
			rnd := rand.New(rand.NewPCG(uint64(n), 1))
			for range chaosRounds {
				if n == 0 {
					c.change(rnd)
				}
				c.use(t, rnd)
				if err := checkInvariants(c.r.Snapshot()); err != nil {
					t.Error(err)
				}
			}
		}()
	}
	wg.Wait()
}

// settle ends all trouble and compares the reloader with one that knows nothing else.
func (c *chaos) settle(t *testing.T) {
	c.server.ClearFaults()
	rnd := rand.New(rand.NewPCG(7, 7))
	for n := range chaosGroups {
		for _, version := range []string{"v1", "v2", "v3"} {
			v := chaosVersion(rnd, version)
			v.Stale = false
			c.server.PutVersion(chaosGroup(n), v)
		}
	}
	c.r.Reset()
	fresh := newReloader(t, c.server)
	for n := range chaosGroups {
		for _, kind := range []string{"Keep", "Alpha", "Beta", "Gamma", "Absent"} {
			for _, versions := range [][]string{nil, {"v1"}, {"v2"}, {"v3", "v1"}} {
				gk := schema.GroupKind{Group: chaosGroup(n), Kind: kind}
				got, gotErr := mapping(c.r, gk, versions...)
				want, wantErr := mapping(fresh, gk, versions...)
				if mappingText(got) != mappingText(want) || (gotErr == nil) != (wantErr == nil) || meta.IsNoMatchError(gotErr) != meta.IsNoMatchError(wantErr) {
					t.Errorf("%v in %q: %s, %v; want %s, %v", gk, versions, mappingText(got), gotErr, mappingText(want), wantErr)
				}
			}
		}
	}
	for _, r := range []*Reloader{c.r, fresh} {
		if err := r.ReadAll(context.Background()); err != nil {
			t.Fatal(err)
		}
		if err := checkInvariants(r.Snapshot()); err != nil {
			t.Error(err)
		}
	}
	if changes := snapshot.Diff(c.r.Snapshot(), fresh.Snapshot()); len(changes) > 0 {
		t.Errorf("in the end %v", changes)
	}
	if got, want := groupNames(c.r.Snapshot()), groupNames(fresh.Snapshot()); !slices.Equal(got, want) {
		t.Errorf("groups %q, not %q", got, want)
	}
}

func mappingText(m *meta.RESTMapping) string {
	if m == nil {
		return ""
	}
	return fmt.Sprintf("%v %v %v", m.GroupVersionKind, m.Resource, m.Scope.Name())
}

func groupNames(s *snapshot.Snapshot) []string {
	var names []string
	for _, g := range s.Groups() {
		names = append(names, g.Name())
	}
	return names
}
