// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// apis knows which kinds the server serves. There are two implementations: the RESTMapper
// of the fork, which learns of changes; and, for comparison, with the build tag stock, a
// scan, which asks from time to time.
type apis interface {
	// Watch calls changed with all kinds that are served, and again with what has changed
	// since then. It returns when ctx ends.
	Watch(ctx context.Context, changed func([]change))
	// RunWhileServed runs run while the kinds are served: it cancels run's context when
	// one goes, and runs it again when it is back, until ctx ends.
	RunWhileServed(ctx context.Context, run func(context.Context) error, kinds ...schema.GroupVersionKind) error
}

// change is what happened to a kind in one version.
type change struct {
	resource
	served bool // as resource says; if it is not, it was
}

// resource is how a kind is served in one version.
type resource struct {
	gvk      schema.GroupVersionKind
	name     string
	obstacle string // why its objects cannot be mirrored; empty if they can
}

func newResource(gvk schema.GroupVersionKind, name string, namespaced bool, verbs []string) resource {
	return resource{gvk: gvk, name: name, obstacle: obstacle(namespaced, verbs)}
}

// obstacle is known without a request, and without a try.
func obstacle(namespaced bool, verbs []string) string {
	if !namespaced {
		return "objects of this kind are in no namespace"
	}
	var missing []string
	for _, verb := range []string{"get", "list", "watch", "create", "patch", "delete"} {
		if !slices.Contains(verbs, verb) {
			missing = append(missing, verb)
		}
	}
	if len(missing) > 0 {
		return "the server does not know the verbs " + strings.Join(missing, ", ") + " for this kind"
	}
	return ""
}

// patterns select kinds by the names that kubectl prints: KIND.GROUP for all versions, or
// KIND.VERSION.GROUP for one. The core group has no name. * stands for any text. They are
// a flag.Value.
type patterns []string

func (p *patterns) String() string { return strings.Join(*p, ",") }

// Set replaces all patterns.
func (p *patterns) Set(list string) error {
	*p = nil
	for name := range strings.SplitSeq(list, ",") {
		name = strings.TrimSpace(name)
		kind, _, _ := strings.Cut(name, ".")
		begins := func(r rune) bool { return unicode.IsUpper(r) || r == '*' }
		if !strings.ContainsFunc(kind, begins) || strings.ContainsAny(name, `?[]\/ `) {
			return fmt.Errorf(
				"%q is no kind, want KIND.GROUP or KIND.VERSION.GROUP such as ConfigMap, Deployment.v1.apps "+
					"or *.example.com",
				name,
			)
		}
		*p = append(*p, name)
	}
	return nil
}

// of returns those of the patterns that select a kind in a version.
func (p patterns) of(gvk schema.GroupVersionKind) patterns {
	unversioned := gvk.GroupKind().String()
	versioned := strings.TrimSuffix(gvk.Kind+"."+gvk.Version+"."+gvk.Group, ".")
	return slices.DeleteFunc(slices.Clone(p), func(pattern string) bool {
		a, _ := path.Match(pattern, unversioned) // Set has made sure that the pattern is good
		b, _ := path.Match(pattern, versioned)
		return !a && !b
	})
}

// filter selects the kinds to mirror: those included, or all, without those excluded.
type filter struct{ include, exclude patterns }

func (f filter) has(gvk schema.GroupVersionKind) bool {
	return len(f.exclude.of(gvk)) == 0 && (len(f.include) == 0 || len(f.include.of(gvk)) > 0)
}
