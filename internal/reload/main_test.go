// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"fmt"
	"testing"
	"time"

	"go.uber.org/goleak"
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
	return New(client, &Queue{}, options)
}

// checkInvariants returns what is wrong with s, as far as that is visible from outside.
// Package snapshot checks the rest itself.
func checkInvariants(s *snapshot.Snapshot) error {
	groups := map[string]bool{}
	for _, g := range s.Groups() {
		if groups[g.Name()] {
			return fmt.Errorf("two groups %q", g.Name())
		}
		groups[g.Name()] = true
		if s.Group(g.Name()) != g {
			return fmt.Errorf("group %q is not found by its name", g.Name())
		}
		versions := map[string]bool{}
		for i := range g.Versions() {
			v := &g.Versions()[i]
			if versions[v.Name] || g.Version(v.Name) == nil {
				return fmt.Errorf("group %q: version %q is twice or nowhere", g.Name(), v.Name)
			}
			versions[v.Name] = true
		}
	}
	switch {
	case !s.Read() && s.Aggregated():
		return fmt.Errorf("aggregated, but never read")
	case s.Read() && s.Generation() == 0:
		return fmt.Errorf("read, but of no generation")
	}
	return nil
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
