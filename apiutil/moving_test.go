// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
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
		if !meta.IsNoMatchError(err) {
			return fmt.Errorf("%v; want NoMatch", err)
		}
		return nil
	})
	for start := time.Now(); answers.Load() < most && wrong.Load() == 0 && time.Since(start) < time.Minute; {
		time.Sleep(10 * time.Millisecond)
		server.TakeRequests()
	}
	close(stop)
	wait()
	t.Logf("%d lookups", answers.Load())
}
