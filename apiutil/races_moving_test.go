// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// These run in real time and at no latency, where goroutines meet in between any
// two steps of each other.

// noMisses runs lookup in as many goroutines until stop is closed, and counts the
// answers and those that are wrong. A panic is one of these.
func noMisses(t *testing.T, goroutines int, stop <-chan struct{}, lookup func() error) (answers, wrong *atomic.Int64, wait func()) {
	t.Helper()
	answers, wrong = new(atomic.Int64), new(atomic.Int64)
	report := func(text string) {
		if wrong.Add(1) <= 3 {
			t.Error(text)
		}
	}
	var all sync.WaitGroup
	for range goroutines {
		all.Add(1)
		go func() {
			defer all.Done()
			defer func() {
				if r := recover(); r != nil {
					report(fmt.Sprintf("panic: %v", r))
				}
			}()
			for {
				select {
				case <-stop:
					return
				default:
				}
				answers.Add(1)
				if err := lookup(); err != nil {
					report(err.Error())
				}
			}
		}()
	}
	return answers, wrong, all.Wait
}

// A kind that moves from one version to another and back, and is served by one of
// them at any moment, is never NoMatch for a lookup that takes either.
func TestMovingKindIsNeverAbsent(t *testing.T) {
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
	moving, absent := schema.GroupKind{Group: "example.com", Kind: "Moving"}, schema.GroupKind{Group: "example.com", Kind: "Absent"}
	serve := func(n int) {
		tables := [][]string{{"Stays", "Moving"}, {"Stays"}}
		server.Put(fakeGroup(moving.Group, fakeVersion("v1", tables[n%2]...), fakeVersion("v2", tables[(n+1)%2]...)))
	}
	var wrong atomic.Int64
	const tries = 500
	for n := range tries {
		serve(n)
		_, _ = m.RESTMapping(absent, []string{"v2", "v1"}[n%2]) // reads live that the kind is not there any more
		allAtOnce(12, func(i int) {
			switch {
			case i == 0:
				serve(n + 1)
			case i < 4:
				_, _ = m.RESTMapping(absent, []string{"v1", "v2"}[i%2])
			default:
				if _, err := m.RESTMapping(moving); err != nil && wrong.Add(1) <= 3 {
					t.Errorf("try %d: %v", n, err)
				}
			}
		})
	}
	if n := wrong.Load(); n > 0 {
		t.Errorf("%d wrong answers in %d tries", n, tries)
	}
}

// A group that has gone, which the document still lists: each lookup with a version
// drops it, each one without puts it back, and nothing panics in between.
func TestGroupThatTheDocumentBringsBack(t *testing.T) {
	server := fakeapi.New(
		fakeGroup("", fakeVersion("v1", "Pod")),
		fakeGroup("example.com", fakeVersion("v1", "Foo")), fakeGroup("other.example.com", fakeVersion("v1", "Other")),
	)
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
	readAll(t, m)
	server.SetLag(fakeapi.PartDocument, fakeapi.Forever)
	server.Remove("example.com")
	most := int64(40_000)
	if testing.Short() {
		most = 4_000
	}
	stop := make(chan struct{})
	var turn atomic.Int64
	answers, wrong, wait := noMisses(t, 64, stop, func() error {
		versions := [][]string{nil, nil, nil, {"v1"}}[turn.Add(1)%4]
		_, err := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"}, versions...)
		switch {
		case err == nil:
			return errors.New("a kind that is not served was found")
		case meta.IsNoMatchError(err):
			return nil
		default:
			return err
		}
	})
	for start := time.Now(); answers.Load() < most && wrong.Load() == 0 && time.Since(start) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
		server.TakeRequests()
	}
	close(stop)
	wait()
	t.Logf("%d lookups", answers.Load())
}

// A kind that moves from one version to another is served by one of them at any
// moment. A lookup is judged by what its own read of the document found, before
// what others published since.
func TestMovingKindBesideOtherReads(t *testing.T) {
	moving := schema.GroupKind{Group: "example.com", Kind: "Moving"}
	tables := [][]string{{"Stays", "Moving"}, {"Stays"}}
	serve := func(server *fakeapi.Server, version int) {
		server.Put(fakeGroup(moving.Group, fakeVersion("v1", tables[version-1]...), fakeVersion("v2", tables[2-version]...)))
	}
	// On one processor the read goes on before who waits for it sees what it found.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	wrong := 0
	for range 20 {
		inBubble(t, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			serve(server, 1)
			var others sync.WaitGroup
			next, move := server.Client().Transport, func(*http.Request) {}
			m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
				resp, err := next.RoundTrip(req)
				move(req)
				return resp, err
			}), apiutil.DynamicRESTMapperOptions{})
			readAll(t, m)
			serve(server, 2)
			absent := schema.GroupKind{Group: moving.Group, Kind: "Absent"}
			_, _ = m.RESTMapping(absent, "v1") // from here on it is known in neither
			moved := false
			move = func(req *http.Request) {
				if req.URL.Path != "/apis" || moved {
					return
				}
				moved = true // after the document was written, which has it in v2
				for range 4 {
					others.Go(func() { _, _ = m.RESTMapping(absent, "v2") })
				}
				synctest.Wait()
				serve(server, 1)
			}
			if _, err := m.RESTMapping(moving); err != nil {
				wrong++
			}
			others.Wait()
		})
	}
	if wrong > 0 {
		t.Errorf("%d of 20 lookups of a kind that is always there found none", wrong)
	}
}
