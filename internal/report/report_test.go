// SPDX-License-Identifier: Apache-2.0

package report

import (
	"slices"
	"testing"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// A version whose kinds were never read is new only once.
func TestUnreadVersionsAreNewOnce(t *testing.T) {
	list := func(groups ...string) *snapshot.Snapshot {
		var all []*snapshot.Group
		for _, name := range groups {
			all = append(all, snapshot.NewGroup(name, "v1", []snapshot.Version{{Name: "v1"}}))
		}
		return new(snapshot.Snapshot).WithDocument(snapshot.NewDocument(all, false), 1)
	}
	before, now := list("a", "b"), list("b", "c")
	if added, want := UnreadSince(before, now), []string{"c/v1"}; !slices.Equal(added, want) {
		t.Errorf("added: %q; want %q", added, want)
	}
	if removed, want := UnreadSince(now, before), []string{"a/v1"}; !slices.Equal(removed, want) {
		t.Errorf("removed: %q; want %q", removed, want)
	}
	if same := UnreadSince(now, now); len(same) > 0 {
		t.Errorf("nothing has changed, and %q are new", same)
	}
}
