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

// tableOf is the table of some kinds, such as Foo, or Foo=get with its only verb.
func tableOf(kinds ...string) *Table {
	var resources []Resource
	for _, kind := range kinds {
		kind, verb, _ := strings.Cut(kind, "=")
		singular := strings.ToLower(kind)
		resources = append(resources, Resource{Name: singular + "s", Singular: singular, Kind: kind, Namespaced: true, Verbs: Verbs(0).With(verb)})
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

func (h *history) documentAt(text string, now Tick) { h.Snapshot = h.WithDocument(h.list(text), now) }

func (h *history) resetAll() { h.Snapshot = h.Reset(h.tick()) }

func (h *history) resetGroup(group string) { h.Snapshot = h.ResetGroup(group, h.tick()) }

func (h *history) group(name string, v ...string) { h.groupAt(h.tick(), name, v...) }

func (h *history) live(text string) { each(text, func(w string) { h.liveAt(w, h.tick(), h.Snapshot) }) }

func each(text string, visit func(word string)) {
	for _, word := range strings.Fields(text) {
		visit(word)
	}
}

// list makes the document. Each read of a legacy server's makes new groups, which only list.
func (h *history) list(text string) *List {
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
}

// groupAt reads the list of a group. The first version is the preferred one.
func (h *history) groupAt(now Tick, name string, versions ...string) {
	preferred := ""
	if len(versions) > 0 {
		preferred = versions[0]
	}
	h.Snapshot = h.WithList(name, versions, preferred, nil, now, h.Snapshot)
}

// text writes down what is known.
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
	if v.Read > 0 {
		text += fmt.Sprintf("@%d", v.Read)
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

// finds returns the version in which a kind is found, and whether that needs no read.
func (s *Snapshot) finds(group, kind string, versions ...string) (version string, current bool) {
	m, current, err := s.RESTMapping(schema.GroupKind{Group: group, Kind: kind}, versions)
	if err != nil {
		return "", current
	}
	return m.GroupVersionKind.Version, current
}

// server is what the reads of a lookup find.
type server struct {
	document string            // does not answer, if "!"
	live     string            // what the document says, if empty
	noLists  bool              // lists of groups do not answer
	then     map[string]string // what is live after a read
	changes  func() string     // what is live after each read; may be nil
}

// proof is a lookup, which makes the reads that are missing as package reload does.
type proof struct {
	*history
	on    server
	q     Query
	p     Progress
	reads []string
	seen  *Snapshot // as the lookup sees it
}

// prove makes a lookup and writes down its reads and what it ends in:
//
//	document  /api and /apis
//	a/        the list of a group's versions, /apis/a
//	a/v1      what a version serves, /apis/a/v1
func (h *history) prove(on server, q Query) string {
	if on.live == "" {
		on.live = on.document
	}
	p := &proof{history: h, on: on, q: q, p: Progress{Began: h.now, Start: h.Snapshot, Done: map[Read]Outcome{}}}
	for len(p.reads) < 50 && !p.current() {
		reads := p.seen.Missing(q, p.p)
		if len(reads) == 0 {
			break
		}
		if len(reads) == 1 {
			reads[0] = reads[0][:1]
		}
		for _, r := range slices.Concat(reads...) {
			p.make(r)
		}
	}
	made := strings.Join(p.reads, ", ")
	if made == "" {
		made = "nothing"
	}
	return made + " → " + p.answer()
}

func (p *proof) current() bool {
	p.seen = p.AsOf(p.p.Began)
	_, current, err := p.find()
	p.p.Found = err == nil
	return current
}

// make makes one read and notes how it ended.
func (p *proof) make(r Read) {
	now, from := p.tick(), p.Snapshot
	o := Outcome{Tick: now, Times: p.p.Done[r].Times + 1, From: from}
	text := "document"
	switch r.Part {
	case PartDocument:
		if p.on.document == "!" {
			o.Err = errUnread
		} else {
			p.documentAt(p.on.document, now)
		}
	case PartList:
		text = r.Group + "/"
		if p.on.noLists {
			o.Err = errUnread
			p.Snapshot = p.WithList(r.Group, nil, "", errUnread, now, p.Snapshot)
		} else {
			p.groupAt(now, r.Group, versionsIn(p.on.live, r.Group)...)
		}
	case PartVersion:
		text = r.Group + "/" + r.Version
		word := wordOf(p.on.live, text)
		_, v := parseVersion(word)
		o.Gone, o.Err = v.Table == nil && v.Err == nil && from.Serves(r.Group, r.Version), v.Err
		p.liveAt(word, now, from)
	}
	p.p.Note(r, o)
	p.reads = append(p.reads, text)
	if live, ok := p.on.then[text]; ok {
		p.on.live = live
	}
	if p.on.changes != nil {
		p.on.live = p.on.changes()
	}
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

func (p *proof) find() (schema.GroupVersion, bool, error) {
	if p.q.All && !p.q.ByResource {
		ms, current, err := p.seen.RESTMappings(schema.GroupKind{Group: p.q.Group, Kind: p.q.Name}, p.q.Versions)
		if err != nil {
			return schema.GroupVersion{}, current, err
		}
		return ms[0].GroupVersionKind.GroupVersion(), current, nil
	}
	if !p.q.ByResource {
		m, current, err := p.seen.RESTMapping(schema.GroupKind{Group: p.q.Group, Kind: p.q.Name}, p.q.Versions)
		if err != nil {
			return schema.GroupVersion{}, current, err
		}
		return m.GroupVersionKind.GroupVersion(), current, nil
	}
	gvr := schema.GroupVersionResource{Group: p.q.Group, Version: strings.Join(p.q.Versions, ""), Resource: p.q.Name}
	gvk, current, err := p.seen.KindFor(gvr)
	return gvk.GroupVersion(), current, err
}

// answer is the version in which something is found, "failed" if what could not be read
// may have it, or "no match".
func (p *proof) answer() string {
	gv, _, err := p.find()
	if err == nil {
		return gv.Group + "/" + gv.Version
	}
	for r, o := range p.p.Done {
		if o.Err != nil && (r.Part != PartDocument || !p.q.Live()) {
			return "failed"
		}
	}
	for _, g := range p.seen.GroupsOf(p.q) {
		if slices.ContainsFunc(g.Versions(), func(v Version) bool { return v.Err != nil && p.q.wants(v.Name) }) {
			return "failed"
		}
	}
	if p.q.anyVersion() && p.p.Any(p.q.Group, func(o Outcome) bool { return o.Gone }) {
		return "no match yet"
	}
	return "no match"
}
