// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

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
			return fmt.Errorf("%q is no kind, want KIND.GROUP or KIND.VERSION.GROUP such as ConfigMap, Deployment.v1.apps or *.example.com", name)
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
