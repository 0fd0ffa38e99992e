// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// many are 20 kinds that are not served.
func many(group, version, kind string) (gvks []schema.GroupVersionKind) {
	for i := range 20 {
		name := func(pattern string) string { return fmt.Sprintf(pattern, i) }
		gvk := schema.GroupVersionKind{Group: group, Version: version, Kind: kind}
		if group == "" {
			gvk.Group = name("late%d.example.com")
		} else {
			gvk.Kind = name("Late%d")
		}
		gvks = append(gvks, gvk)
	}
	return gvks
}

// Those who wait share what they ask: the document once in half a minute, and each path once.
func TestWaitsShareTheirReads(t *testing.T) {
	for name, test := range map[string]struct {
		gvks []schema.GroupVersionKind
		most int // requests an hour, when the first minute is over
	}{
		"20 groups":         {many("", "v1", "Late"), 120 * (2 + 20)},
		"one group":         {many("late.example.com", "v1", ""), 120 * (2 + 1)},
		"a version of one":  {many("example.com", "v2", ""), 120 * (2 + 1)},
		"kinds of a served": {many("example.com", "v1", ""), 120 * (2 + 1)},
	} {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, server *fakeapi.Server) {
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				ctx, cancel := context.WithCancel(context.Background())
				returned := make(chan error)
				for _, gvk := range test.gvks {
					go func() { returned <- m.WaitForKinds(ctx, gvk) }()
					time.Sleep(100 * time.Millisecond)
				}
				time.Sleep(time.Minute)
				server.TakeRequests()
				time.Sleep(time.Hour)
				n := len(server.TakeRequests())
				t.Logf("%d requests an hour, want %d at most", n, test.most)
				if n > test.most || n < 100 {
					t.Errorf("%d requests an hour, want %d at most", n, test.most)
				}
				for _, gvk := range test.gvks[:10] {
					server.PutVersion(gvk.Group, fakeVersion(gvk.Version, gvk.Kind))
					select {
					case err := <-returned:
						if err != nil {
							t.Error(err)
						}
					case <-time.After(noticed + 30*time.Second):
						t.Errorf("%s is served, and its wait goes on", gvk)
					}
				}
				cancel()
				for range test.gvks[10:] {
					<-returned
				}
			})
		})
	}
}

// Those who run while kinds of one version are served share its reads.
func TestRunsShareTheirReads(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		ctx, cancel := context.WithCancel(context.Background())
		returned, stopped := make(chan error), 0
		for range 20 {
			go func() {
				returned <- m.RunWhileServed(ctx, func(ctx context.Context) error {
					<-ctx.Done()
					stopped++
					return nil
				}, fooKind)
			}()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(time.Minute)
		server.TakeRequests()
		time.Sleep(time.Hour)
		n := len(server.TakeRequests())
		t.Logf("%d requests an hour", n)
		if n > 125 || n < 100 {
			t.Errorf("%d requests an hour, want 120", n)
		}
		server.Remove(fooKind.Group)
		time.Sleep(noticed)
		if stopped != 20 {
			t.Errorf("%d of 20 were stopped", stopped)
		}
		cancel()
		for range 20 {
			<-returned
		}
	})
}

// While the watches are open, those who wait ask half as often by themselves.
func TestWaitsAskLessBesideWatches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		server := newServer(fakeapi.Aggregated())
		watches := newWatchServer(server)
		m := newMapperThrough(t, server, watches, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
		stop := startMapper(t, m)
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error)
		for _, gvk := range many("", "v1", "Late") {
			go func() { returned <- m.WaitForKinds(ctx, gvk) }()
			time.Sleep(100 * time.Millisecond)
		}
		time.Sleep(2 * time.Minute)
		server.TakeRequests()
		time.Sleep(time.Hour)
		n := len(server.TakeRequests())
		t.Logf("%d requests an hour, watching: %t", n, m.Status().Watching)
		if n > 60*(2+20)+60 || n < 100 {
			t.Errorf("%d requests an hour", n)
		}
		cancel()
		for range 20 {
			<-returned
		}
		stop()
	})
}

// A kind that comes is found within the period, also if another wait, which has asked for both, has ended just before.
func TestWaitWhoseReaderLeaves(t *testing.T) {
	a, b := schema.GroupVersionKind{Group: "late.example.com", Version: "v1", Kind: "A"}, schema.GroupVersionKind{Group: "late.example.com", Version: "v1", Kind: "B"}
	for i := range 20 {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
			ctx, cancel := context.WithCancel(context.Background())
			defer cancel()
			found, other := make(chan error, 1), make(chan error, 1)
			otherCtx, leave := context.WithCancel(ctx)
			go func() { found <- m.WaitForKinds(ctx, a) }()
			time.Sleep(time.Duration(i+1) * 1400 * time.Millisecond)
			go func() { other <- m.WaitForKinds(otherCtx, b) }()
			time.Sleep(5 * time.Minute)
			server.TakeRequests()
			for len(server.Requests()) == 0 {
				time.Sleep(10 * time.Millisecond)
			}
			time.Sleep(100 * time.Millisecond)
			leave()
			<-other
			server.PutVersion("late.example.com", fakeVersion("v1", "A"))
			begun := time.Now()
			<-found
			if took := time.Since(begun); took > 35*time.Second {
				t.Errorf("found %v after it has come", took)
			}
		})
	}
}
