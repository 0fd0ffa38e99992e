// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"fmt"
	"math/rand/v2"
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
func newReloader(t *testing.T, server *fakeapi.Server, options Options) *Reloader {
	t.Helper()
	client, err := discovery.NewClient(server.Config(), server.Client(), discovery.Options{
		RequestTimeout: 30 * time.Second, MaxResponseBytes: 1 << 20,
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(client, options)
}

// readAll reads every version.
func readAll(t *testing.T, r *Reloader) {
	defer r.KeepAll()()
	if err := r.Refresh(context.Background()); err != nil {
		t.Fatalf("the first refresh: %v", err)
	}
}

// find looks for a kind and returns the version that it is found in.
func find(ctx context.Context, r *Reloader, group, kind string, versions ...string) (string, error) {
	gk := schema.GroupKind{Group: group, Kind: kind}
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

// anyAbsents looks in all groups for what none of them has.
func anyAbsents(ctx context.Context, r *Reloader) Finding {
	return r.Lookup(ctx, snapshot.ResourceQuery(schema.GroupVersionResource{Resource: "absents"}), func(*snapshot.Snapshot) (known, current bool) { return false, false })
}

// serving is a version that serves kinds.
func serving(version string, kinds ...string) fakeapi.Version {
	v := fakeapi.Version{Name: version}
	for _, kind := range kinds {
		singular := strings.ToLower(kind)
		v.Resources = append(v.Resources, fakeapi.Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true})
	}
	return v
}

// change makes a change to one of four groups, of which v1 always serves Keep. All else comes and goes,
// and connections fail.
func change(server *fakeapi.Server, dice *rand.Rand) {
	group, version := fmt.Sprintf("g%d.example.com", dice.IntN(4)), fmt.Sprintf("v%d", 1+dice.IntN(3))
	switch dice.IntN(8) {
	case 0:
		if version != "v1" {
			server.RemoveVersion(group, version)
		}
	case 1:
		server.SetForms([]fakeapi.Forms{fakeapi.Aggregated(), fakeapi.V2Beta1Only(), fakeapi.Legacy()}[dice.IntN(3)])
	case 2:
		fault := []fakeapi.Fault{fakeapi.Refused(), fakeapi.Status(503, 0), fakeapi.TruncatedClean(), fakeapi.LoginPage()}[dice.IntN(4)]
		path := []string{"/api", "/apis", "/apis/" + group, "/apis/" + group + "/v2", "/apis/" + group + "/v3"}[dice.IntN(5)]
		server.SetFault(fakeapi.At(path), fakeapi.Times(1+dice.IntN(3), fault))
	default:
		kinds := []string{"Alpha", "Beta", "Gamma"}[:dice.IntN(4)]
		if version == "v1" {
			kinds = append([]string{"Keep"}, kinds...)
		}
		server.PutVersion(group, serving(version, kinds...))
	}
}

// use does one of the things that the users of a reloader do.
func use(t *testing.T, r *Reloader, dice *rand.Rand) {
	ctx := context.Background()
	group, versions := fmt.Sprintf("g%d.example.com", dice.IntN(4)), [][]string{nil, {"v1"}, {"v2", "v1"}}[dice.IntN(3)]
	switch dice.IntN(12) {
	case 0:
		r.Reset()
	case 1:
		r.ResetGroup(group)
	case 2:
		_ = r.Refresh(ctx)
	case 3:
		anyAbsents(ctx, r)
	case 4:
		_ = r.RefreshGroups(ctx, []string{group})
	case 5, 6, 7, 8:
		_, _ = find(ctx, r, group, []string{"Alpha", "Beta", "Gamma", "Absent"}[dice.IntN(4)], versions...)
	default:
		if _, err := find(ctx, r, group, "Keep", versions...); meta.IsNoMatchError(err) {
			t.Errorf("v1 of %s serves Keep all the time, and a lookup in %q found %v", group, versions, err)
		}
	}
}

// Whatever happens at once: what is always served is never absent, and once it is quiet the mapper
// knows exactly what the server serves.
func TestWhatIsAlwaysServedIsNeverAbsent(t *testing.T) {
	for _, forms := range []fakeapi.Forms{fakeapi.Aggregated(), fakeapi.Legacy()} {
		server := fakeapi.New(fakeapi.Typical(0, 0, 0)...)
		for n := range 4 {
			server.PutVersion(fmt.Sprintf("g%d.example.com", n), serving("v1", "Keep"))
		}
		server.SetForms(forms)
		r := newReloader(t, server, Options{})
		var users sync.WaitGroup
		for n := range 6 {
			users.Add(1)
			go func() {
				defer users.Done()
				dice := rand.New(rand.NewPCG(uint64(n), 1))
				for range 60 {
					if n == 0 {
						change(server, dice)
					}
					use(t, r, dice)
				}
			}()
		}
		users.Wait()
		server.ClearFaults()
		r.Reset()
		fresh := newReloader(t, server, Options{})
		for range 2 { // the second reads what only a list has
			readAll(t, r)
			readAll(t, fresh)
		}
		got, want := r.Snapshot(), fresh.Snapshot()
		if changes := snapshot.Diff(got, want); len(changes) > 0 || len(got.Groups()) != len(want.Groups()) {
			t.Errorf("after all this the mapper knows %d groups, and a new one %d; its kinds differ by %v", len(got.Groups()), len(want.Groups()), changes)
		}
	}
}
