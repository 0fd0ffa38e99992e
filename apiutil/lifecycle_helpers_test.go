// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What the servers of the life cycle's tests serve to begin with.
var (
	lifeFoo   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Foo"}
	lifeBar   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Bar"}
	lifeOther = schema.GroupVersionKind{Group: "other.example.com", Version: "v1", Kind: "Other"}

	// lifeNew is not served.
	lifeNew = schema.GroupVersionKind{Group: "new.example.com", Version: "v1", Kind: "New"}
)

func lifeServer(forms fakeapi.Forms) *fakeapi.Server {
	server := fakeapi.New(
		fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")),
		fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")),
		fakeGroup("other.example.com", fakeVersion("v1", "Other")),
	)
	server.SetForms(forms)
	return server
}

// lifeServe makes the server serve the kind, alone in its version.
func lifeServe(server *fakeapi.Server, gvk schema.GroupVersionKind) {
	server.PutVersion(gvk.Group, fakeVersion(gvk.Version, gvk.Kind))
}

func lifeAsk(m meta.RESTMapper, gvk schema.GroupVersionKind) error {
	_, err := m.RESTMapping(gvk.GroupKind(), gvk.Version)
	return err
}

// lifeReadAll makes the mapper read all that the server serves.
func lifeReadAll(t *testing.T, m *apiutil.DynamicRESTMapper) {
	t.Helper()
	m.Reset()
	if _, err := m.ResourcesFor(schema.GroupVersionResource{Resource: "pods"}); err != nil {
		t.Fatal(err)
	}
}

func lifeWantServed(t *testing.T, m meta.RESTMapper, gvks ...schema.GroupVersionKind) {
	t.Helper()
	for _, gvk := range gvks {
		if err := lifeAsk(m, gvk); err != nil {
			t.Errorf("%s: %v", gvk, err)
		}
	}
}

func lifeWantAbsent(t *testing.T, m meta.RESTMapper, gvks ...schema.GroupVersionKind) {
	t.Helper()
	for _, gvk := range gvks {
		if err := lifeAsk(m, gvk); !meta.IsNoMatchError(err) {
			t.Errorf("%s: %v; want NoMatch", gvk, err)
		}
	}
}

// lifeWantRequests compares the requests since the last call with those wanted.
func lifeWantRequests(t *testing.T, server *fakeapi.Server, what string, want ...string) {
	t.Helper()
	var got []string
	for _, r := range server.TakeRequests() {
		got = append(got, fmt.Sprintf("%s %d", r.Path, r.Code))
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: requests %q; want %q", what, got, want)
	}
}

// lifeStart calls Start in a goroutine. stop ends it and waits until it has returned.
func lifeStart(t *testing.T, m *apiutil.DynamicRESTMapper) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	returned := make(chan error, 1)
	go func() { returned <- m.Start(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-returned; err != nil {
			t.Errorf("Start: %v", err)
		}
	}
}

// A lifeLog keeps what a logger is told.
type lifeLog struct {
	mu    sync.Mutex
	lines []string
}

// newLifeLog returns a log of lines such as `INFO "msg"="…"`, `ERROR …` and `V1 …`.
func newLifeLog() (*lifeLog, logr.Logger) {
	l := &lifeLog{}
	return l, funcr.New(func(_, args string) { l.add(args) }, funcr.Options{Verbosity: 10})
}

func (l *lifeLog) add(args string) {
	level, rest := "ERROR", args
	if _, after, ok := strings.Cut(args, `"level"=`); ok {
		number, text, _ := strings.Cut(after, " ")
		level, rest = "V"+number, text
		if number == "0" {
			level = "INFO"
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, level+" "+rest)
}

// take returns the lines that begin with prefix, and forgets all.
func (l *lifeLog) take(prefix string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.lines {
		if strings.HasPrefix(line, prefix) {
			found = append(found, line)
		}
	}
	l.lines = nil
	return found
}

// containing lists the lines so far that contain text.
func (l *lifeLog) containing(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for _, line := range l.lines {
		if strings.Contains(line, text) {
			found = append(found, line)
		}
	}
	return found
}

// lifeWantLine fails the test unless there is one line, and it contains all the texts.
func lifeWantLine(t *testing.T, lines []string, texts ...string) {
	t.Helper()
	if len(lines) != 1 {
		t.Errorf("%d lines, want one with %q:\n%s", len(lines), texts, strings.Join(lines, "\n"))
		return
	}
	for _, text := range texts {
		if !strings.Contains(lines[0], text) {
			t.Errorf("no %q in: %s", text, lines[0])
		}
	}
}

// A lifeClock notes when requests for a path were sent.
type lifeClock struct {
	next http.RoundTripper
	path string

	mu    sync.Mutex
	times []time.Time
}

func newLifeClock(server *fakeapi.Server, path string) *lifeClock {
	return &lifeClock{next: server.Client().Transport, path: path}
}

func (c *lifeClock) RoundTrip(req *http.Request) (*http.Response, error) {
	if req.URL.Path == c.path {
		c.mu.Lock()
		c.times = append(c.times, time.Now())
		c.mu.Unlock()
	}
	return c.next.RoundTrip(req)
}

// gaps returns the times between the requests so far.
func (c *lifeClock) gaps() []time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	var gaps []time.Duration
	for i := 1; i < len(c.times); i++ {
		gaps = append(gaps, c.times[i].Sub(c.times[i-1]))
	}
	return gaps
}

func (c *lifeClock) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.times)
}

func newLifeMapper(t *testing.T, server *fakeapi.Server, transport http.RoundTripper, opts apiutil.DynamicRESTMapperOptions) *apiutil.DynamicRESTMapper {
	t.Helper()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(server.Config(), &http.Client{Transport: transport}, opts)
	if err != nil {
		t.Fatal(err)
	}
	return m
}
