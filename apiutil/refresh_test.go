// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// After a failure the server is asked again after 1 s, 2 s, 4 s and so on, up to
// 2 minutes or the interval, and at the interval after a success; each a tenth less at most.
func TestFailedRefreshIsRetriedWithBackoff(t *testing.T) {
	for interval, most := range map[time.Duration]time.Duration{
		10 * time.Second: 10 * time.Second, 30 * time.Minute: 2 * time.Minute,
	} {
		t.Run(interval.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				type try struct {
					at     time.Time
					failed bool
				}
				var tries []try
				m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
					resp, err := server.Client().Transport.RoundTrip(req)
					if req.URL.Path == "/api" {
						tries = append(tries, try{time.Now(), err != nil || resp.StatusCode == 503})
					}
					return resp, err
				}), apiutil.DynamicRESTMapperOptions{RefreshInterval: interval})
				stop := startMapper(t, m)
				synctest.Wait() // the first refresh has ended: a fault within it would make it fail after /api
				for _, fault := range []fakeapi.Fault{fakeapi.Status(503, 0), fakeapi.Refused()} {
					heal := server.SetFault(fakeapi.All(), fault)
					time.Sleep(interval + 15*time.Minute)
					heal()
					time.Sleep(2 * interval)
				}
				stop()
				backoff, failures := time.Second, 0
				for i, before := range tries[:len(tries)-1] {
					want := interval
					if !before.failed {
						backoff = time.Second
					} else {
						want, backoff, failures = backoff, min(2*backoff, most), failures+1
					}
					if gap := tries[i+1].at.Sub(before.at); gap < want-want/10 || gap > want {
						t.Errorf("try %d, failed %v, is followed by the next after %v, want %v or a tenth less", i, before.failed, gap, want)
					}
				}
				if failures < 20 || len(tries) < failures+2 {
					t.Errorf("only %d tries, %d of them failed", len(tries), failures)
				}
			})
		})
	}
}

// F4: a kind that went is mapped for no longer than the interval and the requests
// of one refresh, even where nothing else would confirm it.
func TestStalePositivesEnd(t *testing.T) {
	const interval = time.Minute
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, MaxAge: -1})
		server.SetLatency(latency)
		defer startMapper(t, m)()
		longest := time.Duration(0)
		for range 50 {
			serve(server, newKind)
			wantServed(t, m, newKind)
			time.Sleep(rand.N(2 * interval))
			removed := time.Now()
			server.Remove(newKind.Group)
			for lookUp(m, newKind) == nil {
				time.Sleep(10 * time.Millisecond)
			}
			longest = max(longest, time.Since(removed))
		}
		if longest < interval/2 || longest > interval+5*latency+10*time.Millisecond {
			t.Errorf("kinds that went were mapped for at most %v, the interval is %v", longest, interval)
		}
	})
}

// A group that hangs does not keep the others of the same call from being read.
func TestRefreshOfGroupsBesideOneThatHangs(t *testing.T) {
	more := schema.GroupVersionKind{Group: otherKind.Group, Version: "v2", Kind: "More"}
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		wantServed(t, m, fooKind, otherKind)
		server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Timeout())
		serve(server, more)
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		err := m.Refresh(ctx, fooKind.Group, more.Group, fooKind.Group, "absent.example.com")
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), fooKind.Group) {
			t.Errorf("error %v", err)
		}
		server.TakeRequests()
		wantServed(t, m, more)
		wantRequests(t, server, "after the refresh")
	})
}

func TestStartRunsOnlyOnce(t *testing.T) {
	for name, opts := range map[string]apiutil.DynamicRESTMapperOptions{"idle": {}, "interval": {RefreshInterval: time.Minute}} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				m := newMapper(t, newServer(fakeapi.Aggregated()), opts)
				stop := startMapper(t, m)
				synctest.Wait()
				if err := m.Start(context.Background()); err == nil {
					t.Error("Start is not told that the mapper runs already")
				}
				stop()
				if err := m.Start(context.Background()); err == nil {
					t.Error("Start is not told that the mapper has run")
				}
			})
		})
	}
}

// Without options, and after the end of its context, Start sends nothing.
func TestStartWithNothingToDo(t *testing.T) {
	for lasts, opts := range map[time.Duration]apiutil.DynamicRESTMapperOptions{time.Hour: {}, 0: {RefreshInterval: time.Minute}} {
		eachServer(t, func(t *testing.T, server *fakeapi.Server) {
			m := newMapper(t, server, opts)
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), lasts)
			defer cancel()
			if err := m.Start(ctx); err != nil || time.Since(start) != lasts {
				t.Errorf("Start returned %v after %v", err, time.Since(start))
			}
			wantRequests(t, server, "Start")
			if m.NeedLeaderElection() {
				t.Error("Start would wait for leader election")
			}
		})
	}
}

// When its context ends, Start abandons its own request at once. One that was abandoned proves
// nothing: no failure, and nothing about what was not read.
func TestStartEndsInRequest(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"of the document": fakeapi.Timeout(), "of its body": fakeapi.SlowDrip(time.Second), "of a version": {},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
				if name == "of a version" {
					readAll(t, m)
					server.SetLatency(4 * time.Second)
				} else {
					server.SetFault(fakeapi.All(), fault)
				}
				stop := startMapper(t, m)
				time.Sleep(10 * time.Second)
				start := time.Now()
				stop()
				if took := time.Since(start); took > 0 || len(server.Requests()) == 0 {
					t.Errorf("after %d requests Start returned %v after its context ended", len(server.Requests()), took)
				}
				if s := m.Status(); s.ConsecutiveFailures != 0 || s.LastError != nil || len(s.FailedGroupVersions) > 0 {
					t.Errorf("a request that was given up counts as a failure: %+v", s)
				}
			})
		})
	}
}

// defaultMaxAge is the MaxAge of a mapper without options.
const defaultMaxAge = 30 * time.Second

// withAge runs test in both modes with a warm mapper of a slow server.
func withAge(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		server.SetLatency(latency)
		server.TakeRequests()
		test(t, server, m)
	})
}

// wantHit asks for a kind that is known and fails the test if that takes time.
func wantHit(t *testing.T, m *apiutil.DynamicRESTMapper, when string) {
	t.Helper()
	start := time.Now()
	if err := lookUp(m, fooKind); err != nil || time.Since(start) > 0 {
		t.Errorf("%s: a hit took %v, and was %v", when, time.Since(start), err)
	}
}

// Without lookups there is no request and no goroutine.
func TestMaxAgeWhileNobodyAsks(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		synctest.Wait()
		before := goroutines()
		time.Sleep(24 * time.Hour)
		if n := goroutines(); n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		wantRequests(t, server, "in a day without lookups")
		wantHit(t, m, "a day later")
		time.Sleep(time.Hour)
		if n := len(server.TakeRequests()); n == 0 || n > 10 {
			t.Errorf("%d requests for one hit", n)
		}
	})
}

// Hits all the time, from many goroutines, refresh once each MaxAge.
func TestBusyMapperRefreshesOnceEachMaxAge(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		const ages = 10
		for start := time.Now(); time.Since(start) < ages*defaultMaxAge; time.Sleep(defaultMaxAge / 100) {
			allAtOnce(8, func(int) { wantHit(t, m, "busy") })
		}
		refreshes := 0
		for _, r := range server.TakeRequests() {
			if r.Path == "/apis" {
				refreshes++
			}
		}
		if refreshes < ages-2 || refreshes > ages+1 {
			t.Errorf("%d refreshes in %d times MaxAge", refreshes, ages)
		}
	})
}

// Every kind of hit starts a refresh after MaxAge, and no other read counts as one (R5).
func TestEveryLookupConfirmsAfterMaxAge(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper) {
		for _, form := range lookupForms(fooKind) {
			if err := m.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			server.TakeRequests()
			time.Sleep(defaultMaxAge * 2 / 3)
			form.wantAnswer(t, m, "before MaxAge")
			wantRequests(t, server, form.name+" before MaxAge")
			wantAbsent(t, m, newKind)
			readAll(t, m)
			server.TakeRequests()
			time.Sleep(defaultMaxAge/3 + time.Second)
			form.wantAnswer(t, m, "after MaxAge")
			synctest.Wait()
			if n := len(server.TakeRequests()); n == 0 {
				t.Errorf("%s: no refresh after MaxAge", form.name)
			}
		}
	})
}

// The document drops many groups, of which some hang. Each refresh ends with the first that hangs, and
// the next one begins with those that were not asked. Those that hang stay until they
// answer.
func TestDocumentDropsManyGroupsOfWhichSomeHang(t *testing.T) {
	const groups, interval = 30, 10 * time.Second
	const timeout = 10 * time.Second
	for _, hanging := range []int{1, 2, 5} {
		t.Run(fmt.Sprint(hanging), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				server := fakeapi.New(fakeapi.Typical(groups, 1, 1)...)
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, RequestTimeout: timeout})
				readAll(t, m)
				stop := startMapper(t, m)
				synctest.Wait()
				for n := 2; n <= groups; n++ {
					name := fmt.Sprintf("g%04d.example.com", n)
					if server.Remove(name); n%2 == 0 && n <= 2*hanging {
						server.SetFault(fakeapi.InGroup(name), fakeapi.Timeout())
					}
				}
				time.Sleep(time.Duration(hanging+1) * (interval + timeout + time.Second)) // a 404 is doubted for a second
				if got := m.Status().Groups; got != 2+hanging {
					t.Errorf("%d groups are known after %d refreshes, want %d", got, hanging+1, 2+hanging)
				}
				server.ClearFaults()
				time.Sleep(2 * time.Minute)
				if got := m.Status().Groups; got != 2 {
					t.Errorf("%d groups are known in the end, want 2", got)
				}
				stop()
			})
		})
	}
}

// A refresh goes on after a group that the document has dropped and whose path answers 404,
// also where that was known before a list that was behind named it once more.
func TestRefreshGoesOnAfterAGroupThatWasNamedAgain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		serve(server, newKind) // and stays: a server that lists no groups is an error
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{MaxAge: -1})
		wantServed(t, m, fooKind, otherKind)
		server.SetLag(fakeapi.PartDocument, time.Minute)
		server.SetLag(fakeapi.PartLists, time.Minute)
		server.Remove("example.com")
		refresh := func() {
			if err := m.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		}
		wantAbsent(t, m, schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Absent"})
		refresh() // finds the version gone, and then reads the list
		wantAbsent(t, m, schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Absent"})
		server.Remove("other.example.com")
		time.Sleep(2 * time.Minute)
		refresh()
		wantAbsent(t, m, otherKind)
	})
}
