// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

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
	found := r.Lookup(ctx, snapshot.KindQuery(gk, versions))
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

// serving is a version that serves a kind.
func serving(version, kind string) fakeapi.Version {
	singular := strings.ToLower(kind)
	resource := fakeapi.Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true}
	return fakeapi.Version{Name: version, Resources: []fakeapi.Resource{resource}}
}

const group = "g0001.example.com"

// known is a reloader that has read a server of a few groups with three versions each.
func known(t *testing.T, forms fakeapi.Forms) (*fakeapi.Server, *Reloader) {
	t.Helper()
	server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
	server.SetForms(forms)
	r := newReloader(t, server, Options{})
	readAll(t, r)
	server.TakeRequests()
	return server, r
}

// slowServer answers its first request with status 501, the second with 502, and so on. Each takes a second, or 100 ms
// more after it was canceled, as a transport may that stops late.
type slowServer struct{ requests atomic.Int64 }

func (s *slowServer) RoundTrip(req *http.Request) (*http.Response, error) {
	n := int(s.requests.Add(1))
	select {
	case <-time.After(time.Second):
	case <-req.Context().Done():
		time.Sleep(100 * time.Millisecond)
		return nil, req.Context().Err()
	}
	return &http.Response{StatusCode: 500 + n, Header: http.Header{}, Body: http.NoBody, Request: req}, nil
}

// newSlowReloader makes a reloader of a slowServer.
func newSlowReloader(t *testing.T) *Reloader {
	t.Helper()
	cfg := &rest.Config{Host: "http://in-memory", QPS: -1}
	options := discovery.Options{RequestTimeout: 30 * time.Second, MaxResponseBytes: 1 << 20}
	client, err := discovery.NewClient(cfg, &http.Client{Transport: &slowServer{}}, options)
	if err != nil {
		t.Fatal(err)
	}
	return New(client, Options{})
}

var slowVersion = snapshot.ReadVersion("a.example.com", "v1")

// startAndCancel makes a read of the caller's own, and cancels it after 500 ms. The function that it returns waits for
// its end, which must be the cancellation, and returns how long the caller had to wait.
func startAndCancel(t *testing.T, r *Reloader) (wait func() time.Duration) {
	t.Helper()
	start := time.Now()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(500*time.Millisecond, cancel)
	took := make(chan time.Duration, 1)
	go func() {
		c := r.newCaller(onlyNewCalls, waitUntilAnswered)
		c.cancels = true
		if _, err := c.read(ctx, slowVersion); !errors.Is(err, context.Canceled) {
			t.Errorf("a caller that cancels its read gets %v, want the end of its context", err)
		}
		took <- time.Since(start)
	}()
	synctest.Wait()
	return func() time.Duration { return <-took }
}

// readAnyCall returns the status that a caller gets which takes any call that goes on.
func readAnyCall(t *testing.T, r *Reloader) int {
	t.Helper()
	c := r.newCaller(0, waitUntilAnswered)
	outcome, err := c.read(context.Background(), slowVersion)
	var failed *discovery.Error
	if err != nil || !errors.As(outcome.Err, &failed) {
		t.Fatalf("the read ended with %v, %v; want a status", outcome.Err, err)
	}
	return failed.Code
}

// A caller that cancels a call for which nobody else waits returns when that has ended. Until then nobody joins it: the
// end of another caller's context is no answer.
func TestCanceledCallEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReloader(t)
		canceled := startAndCancel(t, r)

		time.Sleep(550 * time.Millisecond) // it is canceled by now, and has not ended
		if status := readAnyCall(t, r); status != 502 {
			t.Errorf("a caller that asks meanwhile gets %d, want the answer to the next request, 502", status)
		}

		if took := canceled(); took != 600*time.Millisecond {
			t.Errorf("the caller that cancels waits for %v, want 600ms: until its request has ended", took)
		}
	})
}

// A caller that cancels a call for which others wait leaves it to them.
func TestCanceledCallGoesOnForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReloader(t)
		canceled := startAndCancel(t, r)

		if status := readAnyCall(t, r); status != 501 {
			t.Errorf("the other caller gets %d, want the answer to the request that both wait for, 501", status)
		}

		if took := canceled(); took != 500*time.Millisecond {
			t.Errorf("the caller that cancels waits for %v, want 500ms: it does not wait for the end", took)
		}
	})
}

// A call that is queued behind another one does not start if its only caller has gone.
func TestQueuedCallThatNobodyNeedsIsNotMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReloader(t)
		gv := schema.GroupVersion{Group: slowVersion.Group, Version: slowVersion.Version}
		go func() { _, _ = r.ReadLive(context.Background(), gv) }()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if _, err := r.ReadLive(ctx, gv); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that needs another read: %v, want the end of its context", err)
		}

		time.Sleep(5 * time.Second)
		if status := readAnyCall(t, r); status != 502 {
			t.Errorf("the next caller gets %d, want the answer to the second request, 502", status)
		}
	})
}

// A queued call that took a token starts also if another caller that has joined it is gone.
func TestQueuedCallWithATokenIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReloader(t)
		gv := schema.GroupVersion{Group: slowVersion.Group, Version: slowVersion.Version}
		go func() { _, _ = r.ReadLive(context.Background(), gv) }()
		synctest.Wait()
		limited := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
			defer cancel()
			limit := NewLimit(gv, flowcontrol.NewTokenBucketPassiveRateLimiter(1, 1))
			_, err := r.ReadLimited(ctx, limit, r.LastSeq())
			limited <- err
		}()
		synctest.Wait()

		ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
		defer cancel()
		if _, err := r.ReadLive(ctx, gv); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that joins: %v, want the end of its context", err)
		}

		var failed *discovery.Error
		if err := <-limited; !errors.As(err, &failed) || failed.Code != 502 {
			t.Errorf("the caller with the token: %v, want the answer to the second request, 502", err)
		}
	})
}

// Callers that wait for a token share the read that is made with it, also if they come back for its result after its
// end. What is asked later needs a token of its own.
func TestLimitedReadsAreShared(t *testing.T) {
	server, r := known(t, fakeapi.Aggregated())
	ctx := context.Background()
	gv := schema.GroupVersion{Group: group, Version: "v1"}
	limit := NewLimit(gv, flowcontrol.NewTokenBucketPassiveRateLimiter(0.001, 1))
	began := r.LastSeq()

	for range 3 {
		if _, err := r.ReadLimited(ctx, limit, began); err != nil {
			t.Errorf("a caller that has begun before the read: %v", err)
		}
	}
	if sent := server.TakeRequests(); len(sent) != 1 {
		t.Errorf("%d requests for three callers, want 1", len(sent))
	}

	if _, err := r.ReadLimited(ctx, limit, r.LastSeq()); !errors.Is(err, ErrLimited) {
		t.Errorf("a caller that begins after the read: %v, want that no read is allowed", err)
	}
}

// Whoever's context has ended reads nothing, and gets its cause.
func TestEndedContextReadsNothing(t *testing.T) {
	server, r := known(t, fakeapi.Legacy())
	reason := errors.New("changed its mind")
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(reason)
	for name, read := range map[string]func() error{
		"a lookup": func() error {
			_, err := find(ctx, r, group, "Absent")
			return err
		},
		"a version": func() error {
			_, err := r.ReadLive(ctx, schema.GroupVersion{Group: group, Version: "v1"})
			return err
		},
		"two groups": func() error { return r.RefreshGroups(ctx, []string{group, "g0002.example.com"}) },
		"all":        func() error { return r.Refresh(ctx) },
		"many groups": func() error {
			absents := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: "absents"})
			return r.Lookup(ctx, absents).Err
		},
	} {
		if err := read(); !errors.Is(err, reason) || len(server.TakeRequests()) > 0 {
			t.Errorf("%s: %v; want %v, and no request", name, err, reason)
		}
	}
}

// R3: a lookup has found a kind, and before it can answer somebody publishes a document in which that is missing again.
// It is answered by what it has read itself: otherwise it would find the kind in no version.
func TestLookupIsAnsweredFromItsOwnReads(t *testing.T) {
	for _, versions := range [][]string{nil, {"v1"}, {"v1", "v2"}} {
		ctx := context.Background()
		server := fakeapi.New(fakeapi.Typical(2, 3, 1)...)
		r := newReloader(t, server, Options{})
		if err := r.ReadDocument(ctx); err != nil {
			t.Fatal(err)
		}
		gk := schema.GroupKind{Group: group, Kind: "Late"}
		l := r.newLookup(snapshot.KindQuery(gk, versions), r.LastSeq(), 0)

		server.PutVersion(group, serving("v1", "Late"))
		if _, err := l.read(ctx, snapshot.ReadVersion(group, "v1")); err != nil {
			t.Fatal(err)
		}
		server.PutVersion(group, serving("v1", "Other"))
		if err := r.ReadDocument(ctx); err != nil {
			t.Fatal(err)
		}

		server.TakeRequests()
		found := l.run(ctx)
		if m, _, err := found.Snapshot.RESTMapping(gk, versions); err != nil || m.GroupVersionKind.Version != "v1" {
			t.Errorf("a lookup in %q, whose own read has found the kind in v1: %v, %v", versions, m, err)
		}
		if sent := server.TakeRequests(); len(sent) > 0 {
			t.Errorf("a lookup in %q, whose own read has found the kind, sends %v", versions, sent)
		}
		if v, err := find(ctx, r, group, "Late", versions...); !meta.IsNoMatchError(err) {
			t.Errorf("the next lookup in %q, which begins after the kind was removed: %q, %v", versions, v, err)
		}
	}
}

// peerTest is a reloader of a server whose document has versions of another API server of the cluster.
type peerTest struct {
	*Reloader
	t      *testing.T
	server *fakeapi.Server
}

func inCluster(t *testing.T, test func(p *peerTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		policy := fakeapi.Group{Name: "policy", Versions: []fakeapi.Version{serving("v1", "Old")}}
		server := fakeapi.New(append(fakeapi.Typical(1, 1, 1), policy)...)
		server.SetPeers(
			fakeapi.Group{Name: "policy", Versions: []fakeapi.Version{serving("v2", "New")}},
			fakeapi.Group{Name: "batch", Versions: []fakeapi.Version{serving("v1", "Job")}},
		)
		test(&peerTest{newReloader(t, server, Options{}), t, server})
	})
}

// finds fails the test unless a kind of v2 of policy is found after so many requests.
func (p *peerTest) finds(kind string, requests int) {
	p.t.Helper()
	p.server.TakeRequests()
	v, err := find(context.Background(), p.Reloader, "policy", kind, "v2")
	if sent := p.server.TakeRequests(); v != "v2" || len(sent) != requests {
		p.t.Errorf("%s is found in %q, error %v, after %d requests; want v2 after %d", kind, v, err, len(sent), requests)
	}
}

// misses fails the test unless a kind is found in no version after so many requests.
func (p *peerTest) misses(group, kind string, requests int, versions ...string) {
	p.t.Helper()
	p.server.TakeRequests()
	v, err := find(context.Background(), p.Reloader, group, kind, versions...)
	if sent := p.server.TakeRequests(); !meta.IsNoMatchError(err) || len(sent) != requests {
		p.t.Errorf("%s is found in %q, error %v, after %d requests; want NoMatch after %d", kind, v, err, len(sent), requests)
	}
}

// R6: a 404 for a built-in version that the document has: the document, read again, decides whether another API
// server of the cluster serves it (KEP-4020).
func TestVersionOfAPeerStays(t *testing.T) {
	inCluster(t, func(p *peerTest) {
		p.finds("New", 2)                     // the document
		p.misses("policy", "Absent", 3, "v2") // the path of v2, and the document, which still has it
		p.finds("New", 0)

		p.misses("policy", "New", 1, "v9") // the document has no v9, so the 404 counts
		p.misses("batch", "Absent", 6)     // a group that peers alone serve, and its list
	})
}

// When the document, read again, does not have the version either, it was removed.
func TestVersionOfAPeerIsRemoved(t *testing.T) {
	inCluster(t, func(p *peerTest) {
		p.finds("New", 2)
		p.server.SetPeers()

		p.misses("policy", "Absent", 3, "v2") // the path of v2, and the document
		p.misses("policy", "New", 1, "v2")    // the path alone: the document has told already
	})
}

// The timer keeps no mapper alive.
func TestAgeLetsGo(t *testing.T) {
	r := newReloader(t, fakeapi.New(fakeapi.Typical(2, 1, 1)...), Options{MaxAge: time.Hour})
	readAll(t, r)
	left := weak.Make(r)
	for range 3000 { // 30 s: goroutines that have answered may still be ending
		if runtime.GC(); left.Value() == nil {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Error("a mapper that nobody uses is still in memory: its timer, which runs for an hour, refers to it")
}

// A caller that refreshes groups and goes away leaves no request behind.
func TestCanceledRefreshOfGroupsSendsNothingMore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newSlowReloader(t)
		start := time.Now()
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(500*time.Millisecond, cancel)
		if err := r.RefreshGroups(ctx, []string{"a.example.com"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%v, want the end of the context", err)
		}
		took := time.Since(start)
		time.Sleep(650*time.Millisecond - took) // the request would end by itself after a second
		r.inFlight.mu.Lock()
		underWay := len(r.inFlight.calls)
		r.inFlight.mu.Unlock()
		if took > 600*time.Millisecond || underWay > 0 {
			t.Errorf("it took %v, and %d calls are under way; want that its request has ended", took, underWay)
		}
		time.Sleep(time.Minute)
	})
}

type roundTripper func(*http.Request) (*http.Response, error)

func (rt roundTripper) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }

// While a path does not answer, one call follows the other, and whoever can do without it waits for none of them.
func TestUnresponsivePathIsNotAwaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const timeout = 30 * time.Second
		hanging := roundTripper(func(req *http.Request) (*http.Response, error) {
			<-req.Context().Done()
			return nil, req.Context().Err()
		})
		options := discovery.Options{RequestTimeout: timeout, MaxResponseBytes: 1 << 20}
		client, err := discovery.NewClient(&rest.Config{Host: "http://in-memory", QPS: -1}, &http.Client{Transport: hanging}, options)
		if err != nil {
			t.Fatal(err)
		}
		r := New(client, Options{})
		read := func(waits waitPolicy) time.Duration {
			start := time.Now()
			if _, err := r.newCaller(0, waits).read(context.Background(), slowVersion); err != nil {
				t.Error(err)
			}
			return time.Since(start)
		}
		if took := read(waitIfResponsive); took != slowThreshold {
			t.Errorf("the first caller waits for %v, want %v", took, slowThreshold)
		}
		read(waitUntilAnswered)
		for _, pause := range []time.Duration{2 * time.Second, 2 * time.Second, timeout} {
			time.Sleep(pause)
			if took := read(waitIfResponsive); took != 0 {
				t.Errorf("a caller waits for %v, want that it waits for no call", took)
			}
		}
		time.Sleep(2 * timeout)
	})
}

// A path is unresponsive for slowThreshold after a read that had no answer, whatever other paths answer, and no longer
// once it has answered itself.
func TestPathIsUnresponsiveUntilItAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		read := func(version string) error {
			_, err := r.ReadLive(context.Background(), schema.GroupVersion{Group: group, Version: version})
			return err
		}
		answers := func(fault fakeapi.Fault) {
			server.ClearFaults()
			server.SetFault(fakeapi.At("/apis/"+group+"/v1"), fault)
		}
		getsNoAnswer := func() {
			t.Helper()
			answers(fakeapi.Timeout())
			if err := read("v1"); !discovery.Unanswered(err) {
				t.Fatalf("%v, want that the read has no answer", err)
			}
			answers(fakeapi.Late(time.Second)) // from now on
		}
		waits := func(when string, want time.Duration) {
			t.Helper()
			start := time.Now()
			c := r.newCaller(onlyNewCalls, waitIfResponsive)
			if _, err := c.read(context.Background(), snapshot.ReadVersion(group, "v1")); err != nil {
				t.Error(err)
			}
			if took := time.Since(start); took != want {
				t.Errorf("%s: a caller waits for %v, want %v", when, took, want)
			}
			time.Sleep(time.Minute) // its read ends meanwhile
		}

		getsNoAnswer()
		time.Sleep(slowThreshold - 1)
		if err := read("v2"); err != nil {
			t.Errorf("another version: %v", err)
		}
		waits("less than slowThreshold after a read that had no answer", 0)

		getsNoAnswer()
		time.Sleep(slowThreshold)
		waits("slowThreshold after such a read", time.Second)

		getsNoAnswer()
		if err := read("v1"); err != nil {
			t.Errorf("the path answers again: %v", err)
		}
		waits("once the path has answered again", time.Second)
	})
}

// What is known of paths that do not answer takes memory only as long as it counts: callers may ask for any version.
func TestUnresponsivePathsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Aggregated())
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		for i := range 10 {
			go func() {
				gv := schema.GroupVersion{Group: group, Version: fmt.Sprintf("v%d", 100+i)}
				_, _ = r.ReadLive(context.Background(), gv)
			}()
		}
		time.Sleep(time.Minute)
		server.ClearFaults()
		if _, err := r.ReadLive(context.Background(), schema.GroupVersion{Group: group, Version: "v1"}); err != nil {
			t.Fatal(err)
		}

		r.inFlight.mu.Lock()
		defer r.inFlight.mu.Unlock()
		if kept := len(r.inFlight.unresponsiveUntil); kept > 0 {
			t.Errorf("%d paths are kept half a minute after they had no answer, want none", kept)
		}
	})
}

// ConfirmAll waits for a server that does not answer once, and then not at all as long as a read of the document has no
// answer. A moment after an attempt that has failed it sends nothing.
func TestConfirmAllRemembersAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := fakeapi.New(fakeapi.Typical(4, 3, 1)...)
		r := newReloader(t, server, Options{MaxAge: time.Minute})
		readAll(t, r)
		confirms := func(when string, wantErr bool, want time.Duration) {
			t.Helper()
			start := time.Now()
			if err := r.ConfirmAll(context.Background()); (err != nil) != wantErr {
				t.Errorf("%s: %v, want an error: %t", when, err, wantErr)
			}
			if took := time.Since(start); took != want {
				t.Errorf("%s: it waits for %v, want %v", when, took, want)
			}
		}
		confirms("everything was just read", false, 0)

		time.Sleep(time.Hour)
		server.SetFault(fakeapi.All(), fakeapi.Timeout())
		confirms("nothing answers", true, maxWait)
		confirms("a moment later", true, 0)
		time.Sleep(slowThreshold)
		confirms("while the read of the document goes on", true, 0)

		server.ClearFaults()
		time.Sleep(time.Minute)
		server.TakeRequests()
		confirms("the server answers again", false, 0)
		if len(server.TakeRequests()) == 0 {
			t.Error("the server answers again, and was not asked")
		}
		confirms("once more", false, 0)
		if sent := server.TakeRequests(); len(sent) > 0 {
			t.Errorf("everything was confirmed, and %v were sent", sent)
		}

		time.Sleep(time.Hour)
		server.SetFault(fakeapi.All(), fakeapi.Status(http.StatusServiceUnavailable, 0))
		confirms("the server fails", true, 0)
		server.TakeRequests()
		confirms("a moment later", true, 0)
		if sent := server.TakeRequests(); len(sent) > 0 {
			t.Errorf("the server failed a moment ago, and %v were sent", sent)
		}
		time.Sleep(slowThreshold)
		confirms("slowThreshold later", true, 0)
		if len(server.TakeRequests()) == 0 {
			t.Error("the server failed slowThreshold ago, and was not asked again")
		}
	})
}

// What is known is stale when MaxAge has passed since the last refresh that succeeded. A refresh that fails leaves it
// stale, and the next one is due after twice MaxAge.
func TestKnownIsStaleUntilARefreshSucceeds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const maxAge = time.Minute
		server := fakeapi.New(fakeapi.Typical(2, 1, 1)...)
		r := newReloader(t, server, Options{MaxAge: maxAge})
		is := func(when string, stale, due bool) {
			t.Helper()
			synctest.Wait()
			if r.Stale() != stale || r.Due() != due {
				t.Errorf("%s: stale: %t, due: %t; want %t, %t", when, r.Stale(), r.Due(), stale, due)
			}
		}
		time.Sleep(time.Hour)
		is("nothing was read", false, false)
		readAll(t, r)
		time.Sleep(maxAge - 1)
		is("just before MaxAge", false, false)
		time.Sleep(time.Nanosecond)
		is("MaxAge later", true, true)

		server.SetFault(fakeapi.All(), fakeapi.Status(http.StatusServiceUnavailable, 0))
		r.RefreshIfDue()
		is("the refresh has failed", true, false)
		time.Sleep(2*maxAge - 1)
		is("just before twice MaxAge", true, false)
		time.Sleep(time.Nanosecond)
		is("twice MaxAge later", true, true)

		server.ClearFaults()
		r.RefreshIfDue()
		is("the refresh has succeeded", false, false)
		time.Sleep(maxAge)
		is("MaxAge after that", true, true)
	})
}

// Without the aggregated document a refresh reads the groups that lookups use, and not those that nobody has used for
// idleAfter.
func TestRefreshReadsNoIdleGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server, r := known(t, fakeapi.Legacy())
		refreshed := func() (used, others int) {
			t.Helper()
			server.TakeRequests()
			if err := r.Refresh(context.Background()); err != nil {
				t.Fatal(err)
			}
			for _, sent := range server.TakeRequests() {
				switch {
				case strings.HasPrefix(sent.Path, "/apis/"+group+"/"):
					used++
				case sent.Path != "/api" && sent.Path != "/apis":
					others++
				}
			}
			return used, others
		}
		if _, others := refreshed(); others == 0 {
			t.Error("the groups were read a moment ago, and the refresh reads none of them")
		}
		time.Sleep(idleAfter)
		if _, err := find(context.Background(), r, group, "Kind0001A"); err != nil {
			t.Fatal(err)
		}
		if used, others := refreshed(); used == 0 || others > 0 {
			t.Errorf("%d reads of the group that is used, and %d of others; want some, and none", used, others)
		}
	})
}
