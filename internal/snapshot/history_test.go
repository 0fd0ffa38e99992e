// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The tests write down what a server serves as words like these:
//
//	a/v1:Foo,Bar  version v1 of group a with its kinds
//	a/v1:         the same without any
//	a/v1          a version that is only listed
//	a/v1!         a version that is listed and that the document marks as stale
//	/v1:Pod       a version of the core group
//
// The first version of a group is the preferred one.

// words splits what a server serves into its groups, in their order.
func words(text string) (groups [][]string) {
	at := map[string]int{}
	for _, word := range strings.Fields(text) {
		name, _, _ := strings.Cut(word, "/")
		if _, ok := at[name]; !ok {
			at[name] = len(groups)
			groups = append(groups, nil)
		}
		groups[at[name]] = append(groups[at[name]], word)
	}
	return groups
}

// parseVersion takes a word apart.
func parseVersion(word string) (group string, v Version) {
	group, rest, _ := strings.Cut(word, "/")
	name, kinds, isRead := strings.Cut(rest, ":")
	if v.Name = strings.TrimSuffix(name, "!"); v.Name != name {
		v.Err = errUnread
	}
	if isRead {
		v.Table = tableOf(strings.FieldsFunc(kinds, func(r rune) bool { return r == ',' })...)
	}
	return group, v
}

// tableOf is the table of some kinds.
func tableOf(kinds ...string) *Table {
	var resources []Resource
	for _, kind := range kinds {
		singular := strings.ToLower(kind)
		resources = append(resources, Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true})
	}
	return NewTable(resources)
}

func parseGroup(words []string) *Group {
	var name string
	var versions []Version
	for _, word := range words {
		var v Version
		name, v = parseVersion(word)
		versions = append(versions, v)
	}
	return NewGroup(name, versions[0].Name, versions)
}

// history is what a mapper knows after one event after the other.
type history struct {
	*Snapshot
	legacy bool
	now    Tick              // of the last event
	seen   map[string]*Group // in documents, by their words: those that are equal are the same
	docs   map[string]*List  // the same of whole documents
}

// newHistory begins with a read of the document, unless text is empty.
func newHistory(legacy bool, text string) *history {
	h := &history{Snapshot: new(Snapshot), legacy: legacy, seen: map[string]*Group{}, docs: map[string]*List{}}
	if text != "" {
		h.document(text)
	}
	return h
}

func (h *history) tick() Tick {
	h.now++
	return h.now
}

// document reads the document.
func (h *history) document(text string) { h.documentAt(text, h.tick()) }

func (h *history) documentAt(text string, now Tick) {
	h.Snapshot = h.WithDocument(h.list(text), now, now)
}

// halfDocument reads half of the document; the other stays as it was read.
func (h *history) halfDocument(text string, half Part) {
	core, named := h.list(text).groups, h.doc.groups
	if half == PartNamed {
		core, named = named, core
	}
	groups := slices.DeleteFunc(slices.Clone(core), func(g *Group) bool { return g.name != "" })
	for _, g := range named {
		if g.name != "" {
			groups = append(groups, g)
		}
	}
	list := h.doc
	if !slices.Equal(groups, list.groups) {
		list = h.doc.Next(groups, !h.legacy)
	}
	if now := h.tick(); half == PartCore {
		h.Snapshot = h.WithDocument(list, now, 0)
	} else {
		h.Snapshot = h.WithDocument(list, 0, now)
	}
}

// list makes the document. Of a legacy server's each read makes new groups, which only list.
func (h *history) list(text string) *List {
	if list := h.docs[text]; list != nil {
		return list
	}
	var groups []*Group
	for _, words := range words(text) {
		key := strings.Join(words, " ")
		if h.legacy {
			for i, word := range words {
				words[i], _, _ = strings.Cut(strings.TrimSuffix(word, "!"), ":")
			}
			groups = append(groups, parseGroup(words))
			continue
		}
		if h.seen[key] == nil {
			h.seen[key] = parseGroup(words)
		}
		groups = append(groups, h.seen[key])
	}
	list := h.doc.Next(groups, !h.legacy)
	if !h.legacy {
		h.docs[text] = list
	}
	return list
}

// live reads versions live. Those in words without kinds are found gone.
func (h *history) live(text string) {
	for _, word := range strings.Fields(text) {
		h.liveAt(word, h.tick())
	}
}

func (h *history) liveAt(word string, now Tick) {
	group, v := parseVersion(word)
	h.Snapshot = h.WithVersion(group, v.Name, v.Table, now)
}

// fails reads a version live in vain.
func (h *history) fails(word string) {
	group, v := parseVersion(word)
	h.Snapshot = h.WithFailedVersion(group, v.Name, errUnread, h.tick())
}

// group reads the list of a group: of all versions in words, the first preferred.
func (h *history) group(name string, versions ...string) {
	preferred := ""
	if len(versions) > 0 {
		preferred = versions[0]
	}
	h.Snapshot = h.WithList(name, versions, preferred, h.tick())
}

// wholeGroup is what RefreshGroups reads.
func (h *history) wholeGroup(text string) {
	words := strings.Fields(text)
	g := parseGroup(words)
	h.group(g.name, g.names()...)
	for _, r := range h.LiveReads(g.name)[1:] {
		at := slices.IndexFunc(words, func(word string) bool {
			_, v := parseVersion(word)
			return v.Name == r.Version
		})
		if at < 0 {
			h.live(r.Group + "/" + r.Version)
		} else {
			h.live(words[at])
		}
	}
}

func (h *history) resetAll()               { h.Snapshot = h.Reset(h.tick()) }
func (h *history) resetGroup(group string) { h.Snapshot = h.ResetGroup(group, h.tick()) }

// text writes down what is known, in the words of the tests; of versions that were
// read live or whose table is older than the document, with the tick after it.
func (s *Snapshot) text() string {
	var all []string
	for _, g := range s.groups {
		for _, v := range g.versions {
			all = append(all, v.text(g.name))
		}
	}
	return strings.Join(all, " ")
}

func (v *Version) text(group string) string {
	text := group + "/" + v.Name
	if v.Err != nil {
		text += "!"
	}
	if v.Table != nil {
		text += ":" + strings.Join(v.Table.spelledKinds(), ",")
	}
	switch {
	case v.Live:
		text += fmt.Sprintf("@%d", v.Read)
	case v.Read > 0:
		text += fmt.Sprintf("~%d", v.Read)
	}
	return text
}

// check compares what is known with want and looks for broken invariants.
func (h *history) check(t *testing.T, want string) {
	t.Helper()
	if diff := cmp.Diff(strings.Fields(want), strings.Fields(h.text())); diff != "" {
		t.Errorf("what is known (-want +got):\n%s", diff)
	}
	if err := checkInvariants(h.Snapshot); err != nil {
		t.Error(err)
	}
}

// settles reports whether a kind is found and no read is needed.
func (s *Snapshot) settles(group, kind string, versions ...string) bool {
	_, settled, err := s.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, versions)
	return settled && err == nil
}
