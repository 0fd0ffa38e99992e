// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindSet is a set of kinds, in any version. It is a flag.Value.
type kindSet map[schema.GroupKind]bool

// sorted lists the kinds in an order that is the same each time.
func (s kindSet) sorted() []schema.GroupKind {
	return slices.SortedFunc(maps.Keys(s), func(a, b schema.GroupKind) int {
		return cmp.Compare(a.String(), b.String())
	})
}

func (s kindSet) String() string {
	var names []string
	for _, kind := range s.sorted() {
		names = append(names, kind.String())
	}
	return strings.Join(names, ",")
}

// Set takes kinds as kubectl prints them: KIND.GROUP, or KIND of the core group.
func (s *kindSet) Set(list string) error {
	*s = kindSet{}
	for name := range strings.SplitSeq(list, ",") {
		kind := schema.ParseGroupKind(strings.TrimSpace(name))
		if !strings.ContainsFunc(kind.Kind, unicode.IsUpper) {
			return fmt.Errorf("%q is no kind, want KIND.GROUP such as ConfigMap or Deployment.apps", name)
		}
		(*s)[kind] = true
	}
	return nil
}

// filter selects the kinds to mirror: those included, or all, without those excluded.
type filter struct{ include, exclude kindSet }

func (f filter) has(kind schema.GroupKind) bool {
	return !f.exclude[kind] && (len(f.include) == 0 || f.include[kind])
}
