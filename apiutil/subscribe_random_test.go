// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A client of random changes and a subscriber that receives now and then agree in
// the end with what the server serves.
func TestSubscriberEndsWhereServerIs(t *testing.T) {
	for seed := range uint64(10) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				random := rand.New(rand.NewPCG(seed, 0))
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
				stop := startMapper(t, m)
				s := subscribe(m)
				for range 100 {
					changeAtRandom(server, random)
					lookUpAtRandom(m, random)
					time.Sleep(time.Duration(random.Int64N(int64(time.Minute))))
					if random.IntN(4) == 0 {
						s.take(t)
					}
				}
				server.ClearFaults()
				time.Sleep(5 * time.Minute) // until a refresh after the last failure
				for s.take(t) != nil {
				}
				if diff := cmp.Diff(servedKinds(t, server), s.kinds); diff != "" {
					t.Errorf("the server's kinds (-want +got):\n%s", diff)
				}
				s.close(t)
				stop()
			})
		})
	}
}

func changeAtRandom(server *fakeapi.Server, random *rand.Rand) {
	group := fmt.Sprintf("g%d.example.com", random.IntN(4))
	version := fmt.Sprintf("v%d", random.IntN(3))
	switch random.IntN(6) {
	case 0:
		server.Remove(group)
	case 1:
		server.RemoveVersion(group, version)
	case 2:
		server.SetFault(fakeapi.Under("/apis"), fakeapi.Times(1+random.IntN(5), fakeapi.Status(503, 0)))
	default:
		var kinds []string
		for _, kind := range []string{"A", "B", "C", "D"} {
			if random.IntN(2) == 0 {
				kinds = append(kinds, kind+[]string{"", ":cluster"}[random.IntN(2)])
			}
		}
		server.PutVersion(group, fakeVersion(version, kinds...))
	}
}

func lookUpAtRandom(m *apiutil.DynamicRESTMapper, random *rand.Rand) {
	gk := schema.GroupKind{Group: fmt.Sprintf("g%d.example.com", random.IntN(5)), Kind: []string{"A", "B", "E"}[random.IntN(3)]}
	switch random.IntN(5) {
	case 0:
		m.Reset()
	case 1:
		m.ResetGroup(gk.Group)
	case 2:
		_, _ = m.RESTMapping(gk)
	case 3:
		_, _ = m.RESTMapping(gk, fmt.Sprintf("v%d", random.IntN(4)))
	}
}

// servedKinds reads what the server serves with a new mapper.
func servedKinds(t *testing.T, server *fakeapi.Server) map[schema.GroupVersionKind]string {
	t.Helper()
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
	kinds := map[schema.GroupVersionKind]string{}
	groups := []string{"", fooKind.Group, otherKind.Group}
	for n := range 4 {
		groups = append(groups, fmt.Sprintf("g%d.example.com", n))
	}
	for _, group := range groups {
		for _, kind := range []string{"Pod", "Node", "Foo", "Bar", "Other", "A", "B", "C", "D"} {
			mappings, err := m.RESTMappings(schema.GroupKind{Group: group, Kind: kind})
			if err != nil && !meta.IsNoMatchError(err) {
				t.Error(err)
			}
			for _, mapping := range mappings {
				kinds[mapping.GroupVersionKind] = mappingText(mapping)
			}
		}
	}
	return kinds
}
