// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// jittered reports whether a wait of d may last for got.
func jittered(d, got time.Duration) bool { return got >= d-d/10 && got <= d }

// If nothing changes, a refresh is two 304s, and there is no other request.
func TestIdleRefreshIsTwo304s(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		stop := startMapper(t, m)
		synctest.Wait()
		wantRequests(t, server, "the first read", "/api 200", "/apis 200")
		generation := m.Generation()
		for range 10 {
			time.Sleep(66 * time.Second)
			for _, r := range server.Requests() {
				if r.BodyBytes != 0 {
					t.Errorf("%s with a body of %d bytes", r, r.BodyBytes)
				}
			}
			requests := server.TakeRequests()
			if len(requests) != 2 && len(requests) != 4 {
				t.Errorf("%d requests in an interval", len(requests))
			}
			for _, r := range requests {
				if r.Code != http.StatusNotModified {
					t.Errorf("%s", r)
				}
			}
		}
		if m.Generation() != generation {
			t.Errorf("generation %d after %d, nothing has changed", m.Generation(), generation)
		}
		stop()
		wantRequests(t, server, "after Start has returned")
		time.Sleep(time.Hour)
		wantRequests(t, server, "an hour later")
	})
}

// After a failure the server is asked again after 1 s, 2 s, 4 s and so on, up to
// 2 minutes or the interval; and at the interval from the first success on.
func TestFailedRefreshIsRetriedWithBackoff(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{
		"503": fakeapi.Status(503, 0), "refused": fakeapi.Refused(), "login page": fakeapi.LoginPage(),
	} {
		for interval, most := range map[time.Duration]time.Duration{
			10 * time.Second: 10 * time.Second, 30 * time.Minute: 2 * time.Minute,
		} {
			t.Run(name+" "+interval.String(), func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					server := newServer(fakeapi.Aggregated())
					clock := newRequestClock(server, "/api")
					m := newMapperThrough(t, server, clock, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval})
					heal := server.SetFault(fakeapi.All(), fault)
					stop := startMapper(t, m)
					defer stop()
					time.Sleep(15 * time.Minute)
					failures := clock.gaps()
					wantBackoff(t, failures, most)
					heal()
					time.Sleep(65 * time.Minute)
					wantIntervals(t, clock.gaps()[len(failures)+1:], interval)

					// After the next failure the backoff begins with a second again.
					heal = server.SetFault(fakeapi.All(), fault)
					before := clock.count()
					for clock.count() == before {
						time.Sleep(time.Second)
					}
					time.Sleep(15 * time.Minute)
					wantBackoff(t, clock.gaps()[before:], most)
					heal()
				})
			})
		}
	}
}

func wantBackoff(t *testing.T, gaps []time.Duration, most time.Duration) {
	t.Helper()
	want := time.Second
	for i, gap := range gaps {
		if !jittered(want, gap) {
			t.Errorf("failure %d is followed by %v, want %v or a tenth less", i+1, gap, want)
		}
		want = min(2*want, most)
	}
	if len(gaps) < 10 {
		t.Errorf("only %d tries", len(gaps))
	}
}

func wantIntervals(t *testing.T, gaps []time.Duration, interval time.Duration) {
	t.Helper()
	for _, gap := range gaps {
		if !jittered(interval, gap) {
			t.Errorf("%v between two refreshes, want %v or a tenth less", gap, interval)
		}
	}
	if len(gaps) == 0 {
		t.Error("no refreshes")
	}
}

// F4: a kind that went is mapped for no longer than the interval and the requests
// of one refresh, even where nothing else would confirm it.
func TestStalePositivesEnd(t *testing.T) {
	const interval, latency = time.Minute, 100 * time.Millisecond
	const most = interval + 5*latency
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: interval, MaxAge: -1})
		server.SetLatency(latency)
		stop := startMapper(t, m)
		defer stop()
		random := rand.New(rand.NewPCG(1, 2))
		longest := time.Duration(0)
		for range 50 {
			serve(server, newKind)
			wantServed(t, m, newKind)
			time.Sleep(time.Duration(random.Int64N(int64(2 * interval))))
			removed := time.Now()
			server.Remove(newKind.Group)
			lived := staleFor(m, newKind, removed)
			if longest = max(longest, lived); lived > most {
				t.Errorf("a kind that went was mapped for %v", lived)
			}
		}
		if longest < interval/2 {
			t.Errorf("no kind that went was mapped for longer than %v: the test shows nothing", longest)
		}
	})
}

// staleFor returns for how long the mapper, which is not told to read, maps a
// kind that is gone.
func staleFor(m *apiutil.DynamicRESTMapper, gvk schema.GroupVersionKind, removed time.Time) time.Duration {
	for lookUp(m, gvk) == nil {
		time.Sleep(10 * time.Millisecond)
	}
	return time.Since(removed)
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

// A refresh that is abandoned in the middle proves nothing about what it has not read.
func TestStoppedRefreshFailsNothing(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Legacy())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		readAll(t, m)
		server.SetLatency(time.Second)
		stop := startMapper(t, m)
		time.Sleep(2500 * time.Millisecond)
		stop()
		if failed := m.Status().FailedGroupVersions; len(failed) > 0 {
			t.Errorf("failed: %v", failed)
		}
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

func TestStartWithoutOptionsWaits(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		start := time.Now()
		ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
		defer cancel()
		if err := m.Start(ctx); err != nil || time.Since(start) != time.Hour {
			t.Errorf("Start returned %v after %v", err, time.Since(start))
		}
		wantRequests(t, server, "Start without options")
		if m.NeedLeaderElection() {
			t.Error("Start would wait for leader election")
		}
	})
}

func TestStartWithEndedContext(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if err := m.Start(ctx); err != nil {
			t.Error(err)
		}
		wantRequests(t, server, "Start after the end")
	})
}

// When its context ends, Start abandons its own request at once.
func TestStartEndsInRequest(t *testing.T) {
	for name, fault := range map[string]fakeapi.Fault{"timeout": fakeapi.Timeout(), "slow drip": fakeapi.SlowDrip(time.Second)} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute})
				server.SetFault(fakeapi.All(), fault)
				stop := startMapper(t, m)
				time.Sleep(10 * time.Second)
				if len(server.Requests()) == 0 {
					t.Error("no request is under way")
				}
				start := time.Now()
				stop()
				if took := time.Since(start); took > 0 {
					t.Errorf("Start returned %v after its context ended", took)
				}
				status := m.Status()
				if status.ConsecutiveFailures != 0 || status.LastError != nil {
					t.Errorf("a request that was given up counts as a failure: %+v", status)
				}
			})
		})
	}
}

// defaultMaxAge is the MaxAge of a mapper without options.
const defaultMaxAge = 30 * time.Second

// maxAges are options that have this MaxAge.
var maxAges = map[string]struct {
	opts apiutil.DynamicRESTMapperOptions
	age  time.Duration
}{

	"by default": {apiutil.DynamicRESTMapperOptions{}, defaultMaxAge},
	"as said":    {apiutil.DynamicRESTMapperOptions{MaxAge: 5 * time.Minute}, 5 * time.Minute},
}

// withAge runs test in both modes with a warm mapper of a slow server.
func withAge(t *testing.T, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration)) {
	for name, maxAge := range maxAges {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, maxAge.opts)
				readAll(t, m)
				server.SetLatency(latency)
				server.TakeRequests()
				test(t, server, m, maxAge.age)
			})
		})
	}
}

// wantImmediate asks for a kind that is known and fails the test if that takes time.
func wantImmediate(t *testing.T, m *apiutil.DynamicRESTMapper, when string, gvk schema.GroupVersionKind) {
	t.Helper()
	start := time.Now()
	if err := lookUp(m, gvk); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	if took := time.Since(start); took > 0 {
		t.Errorf("%s: a hit took %v", when, took)
	}
}

// Without lookups there is no request and no goroutine.
func TestMaxAgeWhileNobodyAsks(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, _ time.Duration) {
		synctest.Wait()
		before := runtime.NumGoroutine()
		time.Sleep(24 * time.Hour)
		for end := time.Now().Add(time.Minute); runtime.NumGoroutine() > before && time.Now().Before(end); {
			time.Sleep(time.Second) // one that has ended may still be counted
		}
		if n := runtime.NumGoroutine(); n > before {
			t.Errorf("%d goroutines, %d before", n, before)
		}
		wantRequests(t, server, "in a day without lookups")
		wantImmediate(t, m, "a day later", fooKind)
		time.Sleep(time.Hour)
		if n := len(server.TakeRequests()); n == 0 || n > 10 {
			t.Errorf("%d requests for one hit", n)
		}
	})
}

// Hits all the time, from many goroutines, refresh once each MaxAge.
func TestBusyMapperRefreshesOnceEachMaxAge(t *testing.T) {
	withAge(t, func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper, age time.Duration) {
		const ages = 10
		for start := time.Now(); time.Since(start) < ages*age; time.Sleep(age / 100) {
			allAtOnce(8, func(int) { wantImmediate(t, m, "busy", fooKind) })
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

// Every kind of hit starts a refresh, also lookups by resource and without a group.
func TestEveryLookupConfirmsAfterMaxAge(t *testing.T) {
	for _, form := range lookupForms(fooKind) {
		t.Run(form.name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				readAll(t, m)
				server.TakeRequests()
				time.Sleep(defaultMaxAge + time.Second)
				form.wantAnswer(t, m, "after MaxAge")
				synctest.Wait()
				if n := len(server.TakeRequests()); n == 0 {
					t.Error("no refresh after MaxAge")
				}
			})
		})
	}
}

// R5: only a refresh counts as a confirmation, and no other read.
func TestMaxAgeCountsFromTheLastRefresh(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		for range 10 {
			if err := m.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			server.TakeRequests()
			time.Sleep(defaultMaxAge * 2 / 3)
			wantImmediate(t, m, "young", fooKind)
			wantRequests(t, server, "a young hit")
			wantAbsent(t, m, newKind)
			readAll(t, m)
			server.TakeRequests()
			time.Sleep(defaultMaxAge/3 + time.Second)
			wantImmediate(t, m, "old", fooKind)
			synctest.Wait()
			if n := len(server.TakeRequests()); n == 0 {
				t.Error("no refresh after MaxAge, because of what lookups have read")
			}
		}
	})
}
