// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// example is a running program of testdata/consumers, built with the fork, that has a server of its own.
type example struct{ address string }

func startExample(t *testing.T, s *Server, name string, args ...string) *example {
	t.Helper()
	e := &example{freeAddress(t.Context(), t)}
	start(t.Context(), t, build(t.Context(), t, name, "fork", nil), s.Kubeconfig, append(args, "-bind-address", e.address)...)
	return e
}

// awaits waits until all pages answer with status 200, and yes holds for what the first one has.
func awaits[page any](t *testing.T, e *example, what string, yes func(page) bool, paths ...string) {
	t.Helper()
	must(t, await(t.Context(), what, func() (bool, error) {
		var first page
		for i, path := range paths {
			code, body, err := httpDo(t.Context(), http.MethodGet, e.address, path)
			if err == nil && i == 0 {
				err = json.Unmarshal([]byte(body), &first)
			}
			if err != nil || code != http.StatusOK {
				return false, errors.Join(err, fmt.Errorf("%s: status %d: %s", path, code, body))
			}
		}
		if !yes(first) {
			return false, fmt.Errorf("%s: %+v", paths[0], first)
		}
		return true, nil
	}))
}

// TestLazywatch has a kind that comes, goes, comes back, goes, and comes back under another resource name. The program
// mirrors its objects each time, and stays ready meanwhile. It asks so seldom that asking is not why.
func TestLazywatch(t *testing.T) {
	t.Parallel()
	s, _ := startServer(t.Context(), t)
	kind := Kind{Group: "mirrored.example.com", Kind: "Widget", Versions: []string{"v1"}}
	program := startExample(t, s, "lazywatch", "-include", "Widget."+kind.Group, "-rescan", (10 * patience).String(), "-probe-interval", "500ms")
	type kinds struct {
		Kinds map[string]struct{ State string }
	}
	for i, plural := range []string{"", "", "gizmos"} {
		kind.Plural = plural
		must(t, s.Install(t.Context(), kind), s.Make(t.Context(), kind, "one", func(object *unstructured.Unstructured) {
			object.SetLabels(map[string]string{"lazywatch.example.com/mirror": "source"})
			object.SetAnnotations(map[string]string{"lazywatch.example.com/to": "kube-system"})
		}))
		eventually(t, fmt.Sprint("the copy, time ", i), func() bool {
			copied, err := s.Object(t.Context(), kind, "kube-system", "one")
			return err == nil && copied != nil && fmt.Sprint(copied.Object["spec"]) == "map[size:1]"
		})
		must(t, s.Uninstall(t.Context(), kind))
		awaits(t, program, "Widget to be gone", func(now kinds) bool { return now.Kinds["Widget."+kind.Group].State == "NotServed" }, "/kinds", "/readyz")
	}
}

// TestSelfheal has an outage beyond the deadline of a repair, in which a kind changes.
func TestSelfheal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _ := startServer(ctx, t)
	kind := Kind{Group: "healed.example.com", Kind: "Widget", Versions: []string{"v1"}}
	must(t, s.Settle(ctx, kind))
	program := startExample(t, s, "selfheal", "-status", filepath.Join(t.TempDir(), "status.json"), "-check-interval", "500ms", "-backoff", "500ms",
		"-backoff-max", "1s", "-tolerate", "1s", "-repair-deadline", "3s", "-kinds", "Widget."+kind.Group)
	type status struct {
		State     string
		Repairing bool
	}
	is := func(state string) func(status) bool {
		return func(now status) bool { return now.State == state && !now.Repairing }
	}
	knows := func(scope string) func(map[string]string) bool {
		return func(now map[string]string) bool { return now["Widget."+kind.Group] == kind.Group+"/v1, "+scope }
	}
	awaits(t, program, "at start", is("Healthy"), "/status", "/healthz", "/readyz")
	awaits(t, program, "the kind at start", knows("namespace"), "/kinds")
	revive := s.Kill()
	awaits(t, program, "beyond the deadline", is("GaveUp"), "/status")
	if code, _, err := httpDo(ctx, http.MethodGet, program.address, "/healthz"); err != nil || code == http.StatusOK {
		t.Errorf("beyond the deadline /healthz answers %d, %v; the program wants to be restarted", code, err)
	}
	if code, body, err := httpDo(ctx, http.MethodPost, program.address, "/repair"); err != nil || code != http.StatusAccepted {
		t.Errorf("a repair by hand: status %d: %s, %v", code, body, err)
	}
	must(t, revive(ctx), s.Uninstall(ctx, kind))
	kind.Cluster = true
	must(t, s.Settle(ctx, kind))
	awaits(t, program, "after it", is("Healthy"), "/status", "/healthz", "/readyz")
	awaits(t, program, "the kind after it", knows("root"), "/kinds")
}
