// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// The tests write down what a server serves as words like these:
//
//	a/v1:Foo,Bar  version v1 of group a with its kinds
//	a/v1:         the same without any
//	a/v1          a version that is only listed; of a live read, one that is gone
//	a/v1!         a version that fails, or that the document marks as stale
//	/v1:Pod       a version of the core group
//
// and what is known with the tick of a read that is not the document's:
//
//	a/v1:Foo@3    read at 3
//	a/v1-@3       found gone at 3
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

// tableOf is the table of some kinds, such as Foo, Foo=get with its only verb, Foo~fooes with
// another resource, or Foo* if it is cluster-wide.
func tableOf(kinds ...string) *Table {
	var resources []Resource
	for _, kind := range kinds {
		kind, verb, _ := strings.Cut(kind, "=")
		kind, resource, _ := strings.Cut(kind, "~")
		kind, cluster := strings.CutSuffix(kind, "*")
		singular := strings.ToLower(kind)
		resources = append(resources, Resource{
			Name: cmp.Or(resource, singular+"s"), Singular: singular, Kind: kind, Namespaced: !cluster, Verbs: Verbs(0).With(verb),
		})
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
	seen   map[string]*Group // in documents, by their words: groups of the same bytes are the same

	began  Tick // when a read began that ends later
	from   *Snapshot
	before *Snapshot // the last document

	asked    Query // what a lookup looks for
	progress Progress
	its      bool // the read is the lookup's
}

// newHistory begins with a read of the document, unless text is empty.
func newHistory(legacy bool, text string) *history {
	h := &history{Snapshot: new(Snapshot), legacy: legacy, seen: map[string]*Group{}}
	if text != "" {
		h.document(text)
	}
	return h
}

func (h *history) tick() Tick {
	h.now++
	return h.now
}

func (h *history) document(text string) { h.documentAt(text, h.tick()) }

func (h *history) documentAt(text string, now Tick) {
	h.Snapshot = h.WithDocument(h.list(text), now)
	h.note(Read{}, Outcome{Tick: now})
}

// note tells a lookup how a read of its own has ended.
func (h *history) note(r Read, o Outcome) {
	if h.its {
		h.progress.Done[r] = o
	}
}

func (h *history) resetAll() { h.Snapshot = h.Reset(h.tick()) }

func (h *history) resetGroup(group string) { h.Snapshot = h.ResetGroup(group, h.tick()) }

func (h *history) live(text string) { each(text, func(w string) { h.liveAt(w, h.tick(), h.Snapshot) }) }

func each(text string, visit func(word string)) {
	for _, word := range strings.Fields(text) {
		visit(word)
	}
}

// list makes the document. Each read of a legacy server's makes new groups, which only list.
func (h *history) list(text string) *Document {
	var groups []*Group
	for _, words := range words(text) {
		if h.legacy {
			for i, word := range words {
				words[i], _, _ = strings.Cut(strings.ReplaceAll(word, "!", ""), ":")
			}
		}
		key := strings.Join(words, " ")
		if h.legacy || h.seen[key] == nil {
			h.seen[key] = parseGroup(words)
		}
		groups = append(groups, h.seen[key])
	}
	return h.doc.Next(groups, !h.legacy)
}

// liveAt reads a version live. The read began at now, when from was known.
func (h *history) liveAt(word string, now Tick, from *Snapshot) {
	group, v := parseVersion(word)
	h.Snapshot = h.WithVersion(group, v.Name, Found{Table: v.Table, Err: v.Err}, now, from)
	h.note(ReadVersion(group, v.Name), Outcome{Tick: now, Gone: v.Table == nil && v.Err == nil})
}

// groupAt reads the list of a group, as liveAt does. The first version is the preferred one.
func (h *history) groupAt(now Tick, from *Snapshot, name string, versions ...string) {
	preferred := ""
	if len(versions) > 0 {
		preferred = versions[0]
	}
	h.Snapshot = h.WithList(name, versions, preferred, now, from)
	h.note(ReadList(name), Outcome{Tick: now, Versions: versions})
}

// text writes down what is known.
func (s *Snapshot) text() string {
	var all []string
	for _, g := range s.groups {
		for _, v := range g.versions {
			all = append(all, v.text(g))
		}
	}
	return strings.Join(all, " ")
}

func (v *Version) text(g *Group) string {
	text := g.name + "/" + v.Name
	if v.Gone {
		text += "-"
		if v.returned() {
			text += "?"
		}
	}
	if v.Err != nil {
		text += "!"
	}
	if v.Table != nil {
		text += ":" + strings.Join(v.Table.spelledKinds(), ",")
	}
	document := g.laid().document.Version(v.Name)
	if v.Read > 0 && (v.Read == v.Asked || document == nil || !document.Table.sameRows(v.Table)) {
		text += fmt.Sprintf("@%d", v.Read)
	}
	return text
}

// finds returns the version in which a kind is found, and whether that needs no read.
func (s *Snapshot) finds(group, kind string, versions ...string) (version string, current bool) {
	m, current, err := s.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, versions)
	if err != nil {
		return "", current
	}
	return m.GroupVersionKind.Version, current
}

func versionsIn(text, group string) (versions []string) {
	each(text, func(word string) {
		if g, v := parseVersion(word); g == group {
			versions = append(versions, v.Name)
		}
	})
	return versions
}

// wordOf returns the word of a version, or its name if it is not among them.
func wordOf(text, name string) string {
	for _, word := range strings.Fields(text) {
		if group, v := parseVersion(word); group+"/"+v.Name == name {
			return word
		}
	}
	return name
}
