// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package served_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// The stories in apiutil/testdata/stories play what these functions do over time: is-served, served, wait and run.

// What List returns belongs to the caller, and its error says which version could not be read.
func TestListBelongsToTheCaller(t *testing.T) {
	gadgets := serving("example.org", "Gadget")
	for name, forms := range map[string]fakeapi.Forms{"aggregated": fakeapi.Aggregated(), "legacy": fakeapi.Legacy()} {
		t.Run(name, func(t *testing.T) {
			bubble.Run(t, func(t *testing.T) {
				server := fakeapi.New(widgets, gadgets, serving("example.net", "Other"))
				server.SetForms(forms)
				m := mapperOf(server, apiutil.DynamicRESTMapperOptions{})
				must(served.List(t.Context(), m))
				server.SetFault(fakeapi.At("/apis/example.net/v1"), fakeapi.Status(503, 0))
				_ = m.Refresh(t.Context(), "example.net")

				for range 2 {
					all, err := served.List(t.Context(), m, "Widget", "gadget")
					if len(all.Kinds) != 2 || all.Generation != m.Generation() {
						t.Fatalf("%+v; want Widget and Gadget, of generation %d", all, m.Generation())
					}
					verbs := all.Kinds[0].Verbs
					if !slices.Contains(verbs, "watch") {
						t.Errorf("verbs %q; want watch among them", verbs)
					}
					for i := range verbs {
						verbs[i] = "mine"
					}
					var failed *apiutil.ErrResourceDiscoveryFailed
					if !errors.As(err, &failed) || (*failed)[schema.GroupVersion{Group: "example.net", Version: "v1"}] == nil {
						t.Errorf("error %v; want the version that fails", err)
					}
				}
			})
		})
	}
}

// The hint is there for an error in an error, and on the debug page; a lookup's own error is upstream's.
func TestHint(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		m := mapperOf(fakeapi.New(widgets), apiutil.DynamicRESTMapperOptions{})
		_, noMatch := m.RESTMapping(widget, "v3")
		err := fmt.Errorf("wrapped: %w", noMatch)
		if text := `wrapped: no matches for kind "Widget" in version "example.com/v3"`; err.Error() != text {
			t.Errorf("error %q; want %q", err, text)
		}

		const hint = "Widget: example.com/v1"
		if got := served.Hint(m, err); got != hint {
			t.Errorf("hint %q; want %q", got, hint)
		}
		if got := served.Hint(m, errors.New("other")); got != "" {
			t.Errorf("hint %q for another error; want none", got)
		}
		time.Sleep(time.Second)
		page := httptest.NewRecorder()
		m.DebugHandler().ServeHTTP(page, httptest.NewRequest(http.MethodGet, "/", nil))
		if !strings.Contains(page.Body.String(), hint) {
			t.Errorf("no %q on the debug page:\n%s", hint, page.Body)
		}
	})
}

// log keeps the lines of a logger.
type log struct {
	mu    sync.Mutex
	lines []string
}

func (l *log) add(_, line string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
}

func (l *log) containing(text string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	others := func(line string) bool { return !strings.Contains(line, text) }
	return slices.DeleteFunc(slices.Clone(l.lines), others)
}

// A run that returns nil by itself is logged, also if the Logger is not an option, but in the context.
func TestRunThatReturnsNilIsLogged(t *testing.T) {
	want := 1
	if strings.HasPrefix(reflect.TypeFor[apiutil.DynamicRESTMapper]().PkgPath(), "sigs.k8s.io/") {
		want = 0 // in the patched controller-runtime, a mapper without a Logger logs to ctrl.Log
	}
	bubble.Run(t, func(t *testing.T) {
		lines := &log{}
		ctx := logr.NewContext(context.Background(), funcr.New(lines.add, funcr.Options{}))
		m := mapperOf(fakeapi.New(widgets), apiutil.DynamicRESTMapperOptions{})
		run := func(context.Context) error { return nil }
		if err := served.RunWhile(ctx, m, run, widget.WithVersion("v1")); err != nil {
			t.Error(err)
		}
		if got := lines.containing("RunWhile has ended"); len(got) != want {
			t.Errorf("logged %q, want %d lines", got, want)
		}
	})
}

func TestRunIsNotCalledAfterTheEnd(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		m := mapperOf(fakeapi.New(widgets), apiutil.DynamicRESTMapperOptions{})
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		run := func(context.Context) error { return errors.New("called") }
		if err := served.RunWhile(ended, m, run, widget.WithVersion("v1")); err != nil {
			t.Errorf("it returns %v, want nil and no call: its context has ended before", err)
		}
	})
}

func TestPanicOfRunReachesTheCaller(t *testing.T) {
	bubble.Run(t, func(t *testing.T) {
		m := mapperOf(fakeapi.New(widgets), apiutil.DynamicRESTMapperOptions{})
		defer func() {
			if recover() != "from run" {
				t.Error("the panic did not reach the caller")
			}
		}()
		run := func(context.Context) error { panic("from run") }
		_ = served.RunWhile(context.Background(), m, run, widget.WithVersion("v1"))
	})
}
