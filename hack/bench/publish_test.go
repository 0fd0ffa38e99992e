// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// BenchmarkPublish: what it takes to get from a decoded group to the next
// snapshot when one of 2,000 groups has changed, after live reads of its versions
// and after a read of the document.
func BenchmarkPublish(b *testing.B) {
	const count, changed = 2000, 1000
	groups := make([]*snapshot.Group, 0, count)
	for _, g := range groupsOf(count)[1:] {
		groups = append(groups, decoded(g, 0))
	}
	// The changed group alternates between two forms, with and without one more
	// kind.
	turns := [2]*snapshot.Group{groups[changed], decoded(groupsOf(count)[1+changed], 1)}
	start := new(snapshot.Snapshot).WithDocument(snapshot.NewDocument(groups, true), 1)
	live := func(s *snapshot.Snapshot, turn int, now snapshot.Tick) *snapshot.Snapshot {
		g := turns[turn]
		for _, v := range g.Versions() {
			s = s.WithVersion(g.Name(), v.Name, snapshot.Found{Table: v.Table}, now, s)
		}
		return s
	}

	b.Run("after=live", func(b *testing.B) {
		b.ReportAllocs()
		s, turn, now := start, 0, snapshot.Tick(1)
		for b.Loop() {
			turn, now = 1-turn, now+1
			s = live(s, turn, now)
		}
		if s.Generation() == start.Generation() {
			b.Fatal("nothing was published")
		}
	})
	b.Run("after=bulk", func(b *testing.B) {
		b.ReportAllocs()
		s, turn, now := start, 0, snapshot.Tick(1)
		document := snapshot.NewDocument(groups, true)
		for b.Loop() {
			b.StopTimer()
			turn, now = 1-turn, now+1
			all := slices.Clone(groups)
			all[changed] = turns[turn]
			unique++
			key := binary.LittleEndian.AppendUint64(nil, uint64(unique))
			b.StartTimer()
			document, _ = share.Documents.Get(share.KeyOf("benchmark", key), func() (*snapshot.Document, error) { return document.Next(all, true), nil })
			s = s.WithDocument(document, now)
		}
		if s.Generation() == start.Generation() {
			b.Fatal("nothing was published")
		}
	})
}

// decoded is the group as a mapper holds it, with so many kinds more.
func decoded(g fakeapi.Group, more int) *snapshot.Group {
	var versions []snapshot.Version
	for _, v := range g.Versions {
		var resources []snapshot.Resource
		for _, r := range append(slices.Clone(v.Resources), moreKinds(more)...) {
			resources = append(resources, snapshot.Resource{Name: r.Name, Singular: r.Singular, Kind: r.Kind, Namespaced: r.Namespaced})
		}
		versions = append(versions, snapshot.Version{Name: v.Name, Table: snapshot.NewTable(resources)})
	}
	return snapshot.NewGroup(g.Name, g.Versions[0].Name, versions)
}

func moreKinds(n int) []fakeapi.Resource {
	return slices.Repeat([]fakeapi.Resource{{Name: "extras", Singular: "extra", Kind: "Extra", Namespaced: true}}, n)
}
