// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Two replicas of an API server behind one address, one of which has heard of a
// new kind and the other has not.
func twoReplicas(forms fakeapi.Forms) (ahead, behind *fakeapi.Server) {
	ahead, behind = newServer(forms), newServer(forms)
	serve(ahead, lateKind)
	serve(ahead, newKind)
	return ahead, behind
}

// documentsInTurn sends requests for the documents to one server and the other in
// turn, and all others to the one ahead.
func documentsInTurn(ahead, behind *fakeapi.Server) fakeapi.Balancer {
	turns := fakeapi.RoundRobin(ahead, ahead, behind, behind) // /api and /apis each
	return func(req *http.Request) *fakeapi.Server {
		if req.URL.Path == "/api" || req.URL.Path == "/apis" {
			return turns(req)
		}
		return ahead
	}
}

// What live reads have found stays, whichever replica the document comes from.
func TestDocumentsOfTwoReplicas(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		for when, meanwhile := range meanwhiles {
			t.Run(when, func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					ahead, behind := twoReplicas(forms)
					m := newMapperThrough(t, ahead, documentsInTurn(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
					readAll(t, m)
					defer startMapper(t, m)()
					for n := range 8 {
						for _, gvk := range []schema.GroupVersionKind{lateKind, fooKind, newKind} {
							if err := lookUp(m, gvk); err != nil {
								t.Errorf("round %d, %s: %v", n, gvk, err)
							}
						}
						if _, err := m.RESTMapping(lateKind.GroupKind()); err != nil {
							t.Errorf("round %d, without a version: %v", n, err)
						}
						meanwhile(t, m)
					}
				})
			})
		}
	})
}

// A program for a kind of a group that both replicas have, in a version that one of
// them lacks, runs on: what ends it is confirmed live.
func TestRunWhileServedByTwoReplicas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		ahead, behind := twoReplicas(fakeapi.Aggregated())
		m := newMapperThrough(t, ahead, documentsInTurn(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
		defer startMapper(t, m)()
		c := runController(m, fooKind, lateKind, newKind)
		time.Sleep(5 * time.Minute)
		c.want(t, 1, 0)
		c.wantReturn(t, true, nil)
	})
}

// Whatever a load balancer does, a kind that both replicas have is always found, a kind
// that neither has never is, and no lookup returns another error.
func TestRoundRobin(t *testing.T) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			ahead, behind := twoReplicas(forms)
			m := newMapperThrough(t, ahead, fakeapi.RoundRobin(ahead, behind), apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
			defer startMapper(t, m)()
			readAll(t, m)
			resets := []func(){func() {}, m.Reset, func() { m.ResetGroup(fooKind.Group) }}
			for n := range 60 {
				resets[n%3]()
				for _, form := range lookupForms(fooKind) {
					if n%2 == 0 && (form.group == "" || form.version == "") {
						continue // so that an odd number of requests shifts the turns
					}
					form.wantAnswer(t, m, fmt.Sprintf("round %d", n))
				}
				for _, gvk := range []schema.GroupVersionKind{lateKind, newKind} {
					if err := lookUp(m, gvk); err != nil && !meta.IsNoMatchError(err) {
						t.Errorf("round %d, %s: %v", n, gvk, err)
					}
				}
				wantAbsent(t, m, schema.GroupVersionKind{Group: fooKind.Group, Version: "v1", Kind: "Absent"})
				time.Sleep(time.Second)
			}
			// In the end both have heard of it.
			serve(behind, lateKind)
			serve(behind, newKind)
			time.Sleep(12 * time.Second)
			wantServed(t, m, lateKind, newKind, fooKind)
		})
	})
}

// A validator of one replica means nothing to the other, and each replica is believed
// only for its own content. As long as no new kind is seen, nothing moves.
func TestSameContentOfTwoReplicas(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		a, b := newServer(fakeapi.Aggregated()), newServer(fakeapi.Aggregated())
		m := newMapperThrough(t, a, fakeapi.RoundRobin(a, b), apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Second})
		readAll(t, m)
		generation := m.Generation()
		stop := startMapper(t, m)
		time.Sleep(time.Minute)
		for _, r := range append(a.TakeRequests()[1:], b.TakeRequests()[1:]...) {
			if r.Code != http.StatusNotModified {
				t.Errorf("%s, although both have the same content", r)
			}
		}
		if m.Generation() != generation {
			t.Error("the generation has moved")
		}
		stop()
	})
}

// A mixedCluster has two API servers, each of which may be of another release, lag,
// boot or fail at any time, and any of which may have a request.
type mixedCluster struct {
	mu      sync.Mutex
	random  *rand.Rand // guarded by mu
	servers []*fakeapi.Server
	mapper  *apiutil.DynamicRESTMapper
}

// releases are what servers speak that may stand beside each other.
var releases = []fakeapi.Forms{fakeapi.Aggregated(), fakeapi.Legacy(), fakeapi.V2Beta1Only(), {V2: true}, {V2: true, ETag: true}}

func newMixedCluster(t *testing.T, seed uint64) *mixedCluster {
	c := &mixedCluster{random: rand.New(rand.NewPCG(seed, 7))}
	for range 2 {
		c.servers = append(c.servers, newServer(releases[c.intn(len(releases))]))
	}
	balancer := fakeapi.RoundRobin(c.servers...)
	if c.intn(2) == 0 {
		balancer = func(*http.Request) *fakeapi.Server { return c.servers[c.intn(2)] }
	}
	c.mapper = newMapperThrough(t, c.servers[0], balancer, apiutil.DynamicRESTMapperOptions{
		RefreshInterval: time.Duration(c.intn(2)*(1+c.intn(20))) * time.Second,
	})
	return c
}

func (c *mixedCluster) intn(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.random.IntN(n)
}

func (c *mixedCluster) both(change func(*fakeapi.Server)) {
	for _, server := range c.servers {
		change(server)
	}
}

// lookUp makes any lookup. Its error must not be NoMatch, if stays says so: the
// kind is served throughout.
func (c *mixedCluster) lookUp(ctx context.Context) (stays bool, err error) {
	m := c.mapper
	switch c.intn(9) {
	case 0:
		_, err = m.RESTMappingWithContext(ctx, fooKind.GroupKind())
	case 1:
		_, err = m.RESTMappingWithContext(ctx, fooKind.GroupKind(), "v1")
	case 2:
		_, err = m.RESTMappingWithContext(ctx, fooKind.GroupKind(), "v3", "v1")
	case 3:
		_, err = m.RESTMappingsWithContext(ctx, otherKind.GroupKind())
	case 4:
		_, err = m.KindForWithContext(ctx, schema.GroupVersionResource{Resource: "bars"})
	case 5:
		_, err = m.ResourcesForWithContext(ctx, schema.GroupVersionResource{Group: "other", Resource: "others"})
	case 6:
		_, err = m.ResourceSingularizerWithContext(ctx, "pods")
	case 7:
		_, err = m.RESTMappingWithContext(ctx, newKind.GroupKind())
		return false, err
	case 8:
		_, err = m.RESTMappingWithContext(ctx, lateKind.GroupKind(), "v2", "v1")
		return false, err
	}
	return true, err
}

// happen lets anything happen but that what newServer serves goes.
func (c *mixedCluster) happen() {
	server, soon := c.servers[c.intn(2)], time.Duration(c.intn(40))*time.Second
	switch c.intn(14) {
	default:
		time.AfterFunc(soon, server.SetFault(c.fault()))
	case 1:
		c.mapper.Reset()
	case 2:
		c.mapper.ResetGroup([]string{"", fooKind.Group, newKind.Group, "unknown"}[c.intn(4)])
	case 3:
		c.both(func(s *fakeapi.Server) { serve(s, newKind) })
	case 4:
		c.both(func(s *fakeapi.Server) { s.Remove(newKind.Group) })
	case 5:
		c.both(func(s *fakeapi.Server) { serve(s, lateKind) })
	case 6:
		c.both(func(s *fakeapi.Server) { s.RemoveVersion(lateKind.Group, lateKind.Version) })
	case 7:
		server.SetForms(releases[c.intn(len(releases))])
	case 8:
		server.SetLag([]fakeapi.Part{fakeapi.PartDocument, fakeapi.PartLists}[c.intn(2)], soon)
	case 9:
		ready := server.Boot(fakeapi.Booting{Unknown: []string{fooKind.Group, otherKind.Group}, Answering: c.intn(2) == 0})
		time.AfterFunc(soon/4, ready)
	case 10:
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.intn(100))*time.Millisecond)
		defer cancel()
		_ = c.mapper.Refresh(ctx, [][]string{nil, {fooKind.Group}, {"", newKind.Group}}[c.intn(3)]...)
	}
}

// fault returns a fault that does not say of a version that it serves nothing.
func (c *mixedCluster) fault() (func(*http.Request) bool, fakeapi.Fault) {
	documents := []fakeapi.Fault{fakeapi.NullItems(), fakeapi.EmptyGroupList(), fakeapi.DuplicateGroups(), fakeapi.NoETag()}
	if n := c.intn(4 * len(documents)); n < len(documents) {
		return fakeapi.At("/apis"), documents[n]
	}
	paths := []string{"/apis", "/apis/example.com", "/apis/example.com/v1", "/apis/other.example.com/v1"}
	faults := []fakeapi.Fault{
		fakeapi.Status(503, 5), fakeapi.Status(403, 0), fakeapi.Status(429, 600), fakeapi.Timeout(), fakeapi.Empty200(), fakeapi.Truncated(),
		fakeapi.LoginPage(), fakeapi.Unexpected304(), fakeapi.Empty(404), fakeapi.WrongKind(), fakeapi.SlowDrip(100 * time.Millisecond), fakeapi.Refused(),
	}
	return fakeapi.At(paths[c.intn(len(paths))]), faults[c.intn(len(faults))]
}

// What is served throughout is never NoMatch, whatever becomes of the servers. When
// all is well again the mapper is right, and healthy.
func TestServedThroughout(t *testing.T) {
	for seed := range uint64(20) {
		inBubble(t, func(t *testing.T) {
			c := newMixedCluster(t, seed)
			stop := startMapper(t, c.mapper)
			defer stop()
			over := make(chan struct{})
			var callers sync.WaitGroup
			for range 3 {
				callers.Go(func() { c.lookUpUntil(t, seed, over) })
			}
			for range 60 {
				c.happen()
				time.Sleep(time.Duration(c.intn(8000)) * time.Millisecond)
			}
			close(over)
			callers.Wait()
			c.wantWell(t, seed)
		})
	}
}

func (c *mixedCluster) lookUpUntil(t *testing.T, seed uint64, over <-chan struct{}) {
	for {
		select {
		case <-over:
			return
		case <-time.After(time.Duration(c.intn(300)) * time.Millisecond):
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(1+c.intn(5000))*time.Millisecond)
		if stays, err := c.lookUp(ctx); stays && meta.IsNoMatchError(err) {
			t.Errorf("seed %d: %v", seed, err)
		}
		cancel()
	}
}

func (c *mixedCluster) wantWell(t *testing.T, seed uint64) {
	c.both(func(s *fakeapi.Server) {
		s.ClearFaults()
		s.SetLag(fakeapi.PartDocument, 0)
		s.SetLag(fakeapi.PartLists, 0)
		serve(s, newKind)
	})
	time.Sleep(2 * time.Minute)
	c.mapper.Reset()
	wantServed(t, c.mapper, fooKind, barKind, otherKind, newKind)
	c.both(func(s *fakeapi.Server) { s.Remove(newKind.Group) })
	c.mapper.Reset()
	wantAbsent(t, c.mapper, newKind)
	if err := c.mapper.Refresh(context.Background()); err != nil {
		t.Errorf("seed %d: %v", seed, err)
	}
	if s := c.mapper.Status(); s.LastError != nil || !s.UnhealthySince.IsZero() || len(s.FailedGroupVersions) > 0 {
		t.Errorf("seed %d: status %+v", seed, s)
	}
}
