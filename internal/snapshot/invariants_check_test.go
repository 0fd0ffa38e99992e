// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"slices"
	"strings"
	"testing"
)

// TestCheckInvariants breaks a snapshot in every way that checkInvariants looks for.
func TestCheckInvariants(t *testing.T) {
	if err := checkInvariants(intact()); err != nil {
		t.Fatalf("intact: %v", err)
	}
	if err := checkInvariants(new(Snapshot)); err != nil {
		t.Fatalf("zero: %v", err)
	}
	tests := map[string]struct {
		breakIt func(*Snapshot)
		want    string
	}{
		"two groups":       {func(s *Snapshot) { s.groups[1].name = "" }, "two groups"},
		"two versions":     {func(s *Snapshot) { s.groups[0].versions[1].Name = "v2" }, "two versions"},
		"incomplete":       {func(s *Snapshot) { s.incomplete++ }, "are incomplete"},
		"private":          {func(s *Snapshot) { s.private-- }, "private"},
		"oldest":           {func(s *Snapshot) { s.oldest = 1 }, "the oldest fact"},
		"complete":         {func(s *Snapshot) { s.groups[2].complete = true }, "complete false"},
		"not complete":     {func(s *Snapshot) { s.groups[0].complete = false }, "complete true"},
		"tried":            {func(s *Snapshot) { s.groups[2].versions[0].Err = nil }, "tried false"},
		"not tried":        {func(s *Snapshot) { s.groups[2].tried = false }, "tried true"},
		"rank":             {func(s *Snapshot) { s.groups[0].ranked[0], s.groups[0].ranked[1] = 0, 1 }, "rank 0 is v1"},
		"rank missing":     {func(s *Snapshot) { s.groups[0].ranked = s.groups[0].ranked[:1] }, "2 versions ranked"},
		"table of its own": {func(s *Snapshot) { g := s.groups[0]; g.versions[1].Table = NewTable(g.versions[0].Table.rows) }, "table of its own"},
		"subresource":      {func(s *Snapshot) { s.groups[0].versions[0].Table.rows[0].Name = "foos/status" }, "subresource"},
		"kind index":       {func(s *Snapshot) { s.groups[0].versions[0].Table.kinds["Foo"] = 1 }, "index"},
		"name index":       {func(s *Snapshot) { delete(s.groups[0].versions[0].Table.names, "foo") }, "index"},
		"exceptions":       {func(s *Snapshot) { s.groups[0].versions[0].Table.odd = new(exceptions) }, "exceptions"},
		"lower kinds":      {func(s *Snapshot) { s.groups[0].versions[0].Table.lower.Store(&map[string]int32{}) }, "lower case"},
		"no facts":         {func(s *Snapshot) { s.groups[1].own = nil }, "without facts"},
		"idle facts":       {func(s *Snapshot) { s.groups[0].own = &facts{doc: s.groups[0]} }, "say nothing"},
		"other facts":      {func(s *Snapshot) { s.groups[1].preferred = "v2" }, "its facts make of it"},
		"no list":          {func(s *Snapshot) { s.groups[1].own.listed = []string{"v1"} }, "never read"},
		"facts turned":     {func(s *Snapshot) { slices.Reverse(s.groups[1].own.versions) }, "not sorted"},
		"two facts":        {func(s *Snapshot) { s.groups[1].own.versions[1].name = "v1" }, "two of v1"},
		"gone, and there":  {func(s *Snapshot) { s.groups[1].own.versions[1].live = false }, "gone, but not live"},
		"never read":       {func(s *Snapshot) { s.groups[1].own.versions[2].live = true }, "live, but never read"},
		"kept":             {func(s *Snapshot) { s.groups[1].own.versions[0].live, s.groups[1].versions[0].Live = false, false }, "although the document"},
		"never tried":      {func(s *Snapshot) { s.groups[1].own.versions[2].tried = 0 }, "never tried"},
		"failed before":    {func(s *Snapshot) { s.groups[1].own.versions[2].read = 99 }, "before the good read"},
		"about nothing":    {func(s *Snapshot) { f := &s.groups[1].own.versions[2]; f.err, f.tried = nil, 0 }, "about nothing"},
		"other document":   {func(s *Snapshot) { s.doc = intact().doc }, "of another document"},
		"no order":         {func(s *Snapshot) { s.order = nil }, "no order"},
		"positions":        {func(s *Snapshot) { s.order.position["more"] = 3 }, "5 positions"},
		"position":         {func(s *Snapshot) { s.order.position["apps"] = 1 }, `group "apps" is at 2`},
		"names":            {func(s *Snapshot) { s.order.names = s.order.names[:2] }, "groups that begin"},
		"reset":            {func(s *Snapshot) { s.reset = 99 }, "after the last"},
		"no document":      {func(s *Snapshot) { s.groups, s.order, s.doc, s.private, s.incomplete = nil, nil, nil, 0, 0 }, "without a document"},
		"generation":       {func(s *Snapshot) { s.generation = 0 }, "no generation"},
		"no names":         {func(s *Snapshot) { s.names = nil }, "no index of names"},
		"name missing":     {func(s *Snapshot) { delete(s.nameIndex(), "foo") }, "not found by"},
		"group missing":    {func(s *Snapshot) { s.nameIndex()["bar"] = nil }, "not found by"},
		"group of another": {func(s *Snapshot) { s.nameIndex()["bar"] = []*Group{parseGroup([]string{"apps/v1:Bar"})} }, "is at -1"},
		"groups turned":    {func(s *Snapshot) { slices.Reverse(s.nameIndex()["foo"]) }, "not after"},
		"group reset":      {func(s *Snapshot) { s.groupResets["apps"] = 99 }, "waits for reset 99"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := intact()
			test.breakIt(s)
			if err := checkInvariants(s); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want something of %q", err, test.want)
			}
		})
	}
}
