// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package discoverycache

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/discovery"

	"github.com/freshmapper/freshmapper/apiutil"
	ours "github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// stateTest is a cache whose states are checked. MaxAge is the default, 30 seconds.
type stateTest struct {
	*testing.T
	cache  *cachedDiscovery
	mapper *apiutil.DynamicRESTMapper
	server *fakeapi.Server
}

func inEachForm(t *testing.T, test func(s *stateTest)) {
	for name, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := fakeapi.New(fakeapi.Typical(3, 2, 2)...)
				server.SetForms(forms)
				opts := apiutil.DynamicRESTMapperOptions{}
				mapper, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), server.Client(), opts)
				if err != nil {
					t.Fatal(err)
				}
				client, err := discovery.NewDiscoveryClientForConfigAndClient(server.Config(), server.Client())
				if err != nil {
					t.Fatal(err)
				}
				test(&stateTest{t, New(mapper, client).(*cachedDiscovery), mapper, server})
				time.Sleep(10 * time.Minute)
			})
		})
	}
}

func (s *stateTest) want(when string, want state) {
	s.Helper()
	names := map[state]string{empty: "empty", current: "current", stale: "stale", failing: "failing"}
	if got, _, _ := s.cache.state(); got != want {
		s.Errorf("%s, the cache is %s; want %s", when, names[got], names[want])
	}
}

// The error of an outage is that of each version, and its text is short, however many versions there are.
func TestErrorOfAnOutage(t *testing.T) {
	inEachForm(t, func(s *stateTest) {
		s.use(true, false)
		s.server.SetFault(fakeapi.All(), fakeapi.Refused())
		s.mapper.Reset()
		_, lists, outage := s.cache.ServerGroupsAndResources()
		failed, _ := discovery.GroupDiscoveryFailedErrorGroups(outage)
		if len(failed) != len(lists) {
			s.Errorf("%d lists, and errors of %d versions; want those of all", len(lists), len(failed))
		}
		for gv, err := range failed {
			var failure *ours.Error
			if !errors.As(err, &failure) || failure.Path != "/api" {
				s.Errorf("%s: %v; want an error of /api", gv, err)
			}
		}
		list, err := s.cache.ServerResourcesForGroupVersion("g0003.example.com/v1")
		if list == nil || err == nil || !strings.Contains(err.Error(), "connection refused") {
			s.Errorf("one version: %v, %v; want its list, and the reason", list, err)
		}
		if text := outage.Error(); strings.Count(text, "connection refused") != 1 {
			s.Errorf("%s; want the reason once", text)
		}
	})
}

// use uses the cache, and returns how many requests that has sent.
func (s *stateTest) use(wantLists, wantErr bool) (requests int) {
	s.Helper()
	s.server.TakeRequests()
	_, lists, err := s.cache.ServerGroupsAndResources()
	if (len(lists) > 0) != wantLists || (err != nil) != wantErr {
		s.Errorf("%d lists, %v; want lists: %t, an error: %t", len(lists), err, wantLists, wantErr)
	}
	return len(s.server.TakeRequests())
}

func TestStatesWhileTheServerAnswers(t *testing.T) {
	inEachForm(t, func(s *stateTest) {
		s.want("at first", empty)
		if n := s.use(true, false); n == 0 {
			s.Error("no request, although nothing was known")
		}
		s.want("after the first use", current)
		if n := s.use(true, false); n != 0 {
			s.Errorf("%d requests, although the cache was current", n)
		}

		time.Sleep(30 * time.Second)
		s.want("after MaxAge", stale)
		s.use(true, false)
		s.want("after a use after MaxAge", current)

		s.server.Put(fakeapi.Typical(4, 1, 1)[4])
		if err := s.mapper.Refresh(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.want("when the mapper has noticed a change", stale)
		s.use(true, false)
		s.want("after a use after a change", current)

		s.mapper.Reset()
		s.want("when the mapper was reset", stale)
		s.use(true, false)
		s.want("after a use after a reset", current)

		s.cache.Invalidate()
		s.want("after Invalidate", empty)
		s.use(true, false)
		s.want("after a use after Invalidate", current)
	})
}

func TestStatesInAnOutage(t *testing.T) {
	inEachForm(t, func(s *stateTest) {
		s.use(true, false)
		s.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(29 * time.Second)
		s.want("within MaxAge", current)
		s.use(true, false)

		time.Sleep(time.Hour)
		s.want("after an hour", stale)
		if n := s.use(true, true); n == 0 {
			s.Error("no request, although the cache was stale")
		}
		for _, pause := range []time.Duration{3, 6, 12, 24, 30, 30} {
			s.want("after a read that failed", failing)
			s.use(true, true)
			time.Sleep(pause*time.Second - time.Millisecond)
			s.want("shortly before the next attempt", failing)
			time.Sleep(time.Millisecond)
			s.want("when the next attempt is due", stale)
			s.use(true, true)
		}

		s.mapper.Reset()
		s.want("when the mapper was reset", stale)
		s.use(true, true)
		s.want("after an attempt after the reset", failing)

		s.cache.Invalidate()
		s.want("after Invalidate", empty)
		s.use(false, true)
		s.want("after a read that failed after Invalidate", failing)
		s.use(false, true)

		s.server.ClearFaults()
		if err := s.mapper.Refresh(s.Context()); err != nil {
			s.Fatal(err)
		}
		s.use(true, false)
		s.want("when the mapper has read the server", current)
	})
}

// A deferred mapper that has nothing from the cache yet must read. In an outage it must not: it would know nothing.
func TestFreshBeforeTheFirstUseAndInAnOutage(t *testing.T) {
	inEachForm(t, func(s *stateTest) {
		if s.cache.Fresh() {
			s.Error("the cache is fresh, although nothing was taken from it")
		}
		s.use(true, false)
		if !s.cache.Fresh() {
			s.Error("the cache is not fresh after its first use")
		}
		s.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(time.Hour)
		s.use(true, true)
		s.want("after a read that failed", failing)
		s.server.TakeRequests()
		isFresh := s.cache.Fresh()
		if sent := s.server.TakeRequests(); !isFresh || len(sent) > 0 {
			s.Errorf("in an outage the cache is fresh: %t, after %d requests; want true after none", isFresh, len(sent))
		}
	})
}

// A server whose versions all fail has no empty API: there is an error. When they answer, the next use has them.
func TestNoVersionAnswers(t *testing.T) {
	inEachForm(t, func(s *stateTest) {
		before := s.server.Groups()
		for _, group := range s.server.Groups() {
			group.Versions = slices.Clone(group.Versions)
			for i := range group.Versions {
				group.Versions[i].Stale = true
			}
			s.server.Put(group)
		}
		s.use(false, true)
		if groups, err := s.cache.ServerGroups(); err == nil {
			s.Errorf("%d groups without resources, and no error", len(groups.Groups))
		}
		for _, group := range before {
			s.server.Put(group)
		}
		s.use(true, false)
	})
}
