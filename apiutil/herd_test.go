// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// Replicas of an operator, each with an interval and watches, send their server at most 2 requests
// each, on the average, in any second, whatever happens to it; and at most 0.6 in any tenth of one,
// because they do not act in step. Refused ones count. No lookup of a kind that is served all
// the time returns NoMatch. hack/proof runs it with FRESHMAPPER_HERD=500 replicas.
func TestHerd(t *testing.T) {
	replicas, chance := 50, 1.0 // which few replicas show more of; those that act in step exceed it at once
	if n, err := strconv.Atoi(os.Getenv("FRESHMAPPER_HERD")); err == nil {
		replicas, chance = n, map[bool]float64{true: 1}[n < 200]
	}
	for name, happen := range map[string]func(s *herdServer){
		"200 CustomResourceDefinitions in 10 s": func(s *herdServer) {
			for n := range 200 {
				s.lists[crdsPath].happen("put", nil)
				time.AfterFunc(80*time.Millisecond, func() {
					s.server.PutVersion(fmt.Sprintf("crd%03d.example.com", n), fakeVersion("v1", "Thing"))
					s.lists[crdsPath].happen("put", nil)
				})
				time.Sleep(50 * time.Millisecond)
			}
		},
		"the server is down for 10 s, boots for 5 s, and serves more": func(s *herdServer) {
			serve(s.server, lateKind)
			serve(s.server, newKind)
			s.restart(10*time.Second, 5*time.Second)
		},
		"the server is down for 1 s, and boots for 0.5 s": func(s *herdServer) {
			s.restart(time.Second, 500*time.Millisecond)
		},
		"all connections are cut": func(s *herdServer) { s.restart(0, 0) },
		"two servers serve more, one a minute after the other": func(s *herdServer) {
			for _, server := range []*herdServer{s.other, s} {
				server.upgrade(10 * time.Second)
				time.Sleep(time.Minute)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				s := newHerdServer()
				if strings.HasPrefix(name, "two servers") {
					s.other = newHerdServer()
				}
				ctx, cancel := context.WithCancel(context.Background())
				var running sync.WaitGroup
				for range replicas {
					m := newMapperThrough(
						t, s.server, s, apiutil.DynamicRESTMapperOptions{RefreshInterval: 30 * time.Second, WatchAPIs: true},
					)
					running.Go(func() {
						time.Sleep(rand.N(30 * time.Second))
						running.Go(func() { _ = m.Start(ctx) })
						s.use(ctx, m)
					})
				}
				time.Sleep(2 * time.Minute)
				s.mu.Lock()
				s.requests = nil
				s.mu.Unlock()
				happen(s)
				time.Sleep(2 * time.Minute)
				cancel()
				running.Wait()
				for window, limit := range map[time.Duration]float64{time.Second: 2, 100 * time.Millisecond: 0.6} {
					peak := float64(most(s.requests, window)) / float64(replicas)
					t.Logf("at most %.3f requests a replica in %v", peak, window)
					if peak > limit+chance {
						t.Errorf("in one window of %v each of %d replicas has sent %.3f requests, on the average; "+
							"want at most %.3f, so that they do not flood the server",
							window, replicas, peak, limit+chance)
					}
				}
				t.Logf("%d lookups, of which %d returned NoMatch and %d failed", s.lookups.Load(), s.wrong.Load(), s.failed.Load())
				if s.wrong.Load() > 0 || s.failed.Load() > 0 {
					t.Errorf("of %d lookups of what is served all the time %d returned NoMatch and %d failed",
						s.lookups.Load(), s.wrong.Load(), s.failed.Load())
				}
			})
		})
	}
}

// A herdServer is the server of a herd of replicas, or the first of two behind a load balancer.
type herdServer struct {
	*watchServer
	server *fakeapi.Server
	other  *herdServer // nil: there is one server
	down   atomic.Bool // the load balancer sends nothing to it

	mu       sync.Mutex
	requests []time.Time

	lookups, wrong, failed atomic.Int64
}

func newHerdServer() *herdServer {
	s := &herdServer{server: newServer(fakeapi.Aggregated())}
	s.watchServer = newWatchServer(s.server)
	s.server.SetLatency(5 * time.Millisecond)
	return s
}

// RoundTrip sends the request to the server, or to one of the two in turn.
func (s *herdServer) RoundTrip(req *http.Request) (*http.Response, error) {
	s.mu.Lock()
	s.requests = append(s.requests, time.Now())
	odd := len(s.requests)%2 == 1
	s.mu.Unlock()
	if s.other == nil || s.other.down.Load() {
		return s.watchServer.RoundTrip(req)
	}
	if odd || s.down.Load() {
		return s.other.watchServer.RoundTrip(req)
	}
	return s.watchServer.RoundTrip(req)
}

// upgrade takes one of two servers out of the load balancer for a while, and ends its watches. Then it is back, with
// more kinds.
func (s *herdServer) upgrade(down time.Duration) {
	s.down.Store(true)
	for _, list := range s.lists {
		list.EndWatches()
	}
	time.Sleep(down)
	serve(s.server, lateKind)
	serve(s.server, newKind)
	s.down.Store(false)
	for _, list := range s.lists {
		list.happen("put", nil)
	}
}

// restart ends all watches. The server is down for a while, and boots for another.
func (s *herdServer) restart(down, booting time.Duration) {
	s.server.SetFault(fakeapi.All(), fakeapi.Refused())
	for _, list := range s.lists {
		list.happen("fail", []string{"refuse"})
	}
	time.Sleep(down)
	ready := s.server.Boot(fakeapi.Booting{Unknown: []string{"example.com", "other.example.com", "new.example.com"}})
	s.server.ClearFaults()
	for _, list := range s.lists {
		list.happen("mend", nil)
	}
	time.Sleep(booting)
	ready()
}

// use looks up, again and again, what is served all the time.
func (s *herdServer) use(ctx context.Context, m *apiutil.DynamicRESTMapper) {
	_ = lookUp(m, lateKind) // which is not served at first, so that its group is read live
	for ctx.Err() == nil {
		_, err := m.RESTMapping(barKind.GroupKind())
		for _, err := range []error{err, lookUp(m, fooKind), lookUp(m, otherKind)} {
			s.lookups.Add(1)
			if meta.IsNoMatchError(err) {
				s.wrong.Add(1)
			} else if err != nil {
				s.failed.Add(1)
			}
		}
		time.Sleep(200*time.Millisecond + rand.N(100*time.Millisecond))
	}
}

// most returns how many times lie in a window at most, its end not included.
func most(times []time.Time, window time.Duration) int {
	found := 0
	for i, at := range times {
		end, _ := slices.BinarySearchFunc(times, at.Add(window), time.Time.Compare)
		found = max(found, end-i)
	}
	return found
}
