// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestRules plays the scripts in testdata, each about a rule of DESIGN.md. What stands after an
// arrow the command must print. The README there lists the commands.
func TestRules(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, story := range strings.Split(string(script), "\n\n") {
			title, _, _ := strings.Cut(story, "\n")
			t.Run(filepath.Base(path)+"/"+strings.TrimPrefix(title, "# "), func(t *testing.T) { playStory(t, story) })
		}
	}
}

func playStory(t *testing.T, story string) {
	h := newHistory(false, "")
	for _, line := range strings.Split(story, "\n") {
		command, want, checked := strings.Cut(line, "→")
		command, want = strings.TrimSpace(command), strings.TrimSpace(want)
		if command == "" || command[0] == '#' {
			continue
		}

		got, err := h.do(strings.Fields(command))
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if checked && got != want {
			t.Errorf("%s\nprints %s\nwant   %s\nwhile this is known: %s", command, got, want, h.text())
		}
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Errorf("after %s what is known contradicts itself: %v\nknown is %s", command, err, h.text())
		}
	}
}

// history is what a mapper knows after one event after the other.
type history struct {
	*Snapshot
	legacy         bool
	now            Seq               // of the last event
	groupOf        map[string]*Group // in documents, by their words: groups of the same bytes are the same
	beforeDocument *Snapshot         // what was known before the last document

	// A read that has begun and ends later.
	readBegan Seq
	readFrom  *Snapshot

	// A lookup, how far it has come, and whether the present read is its own.
	query    Query
	progress Progress
	ownRead  bool
}

// newHistory begins with a read of the document, unless text is empty.
func newHistory(legacy bool, text string) *history {
	h := &history{Snapshot: new(Snapshot), legacy: legacy, groupOf: map[string]*Group{}}
	if text != "" {
		h.document(text, h.seq())
	}
	return h
}

func (h *history) seq() Seq {
	h.now++
	return h.now
}

// play does what commands say.
func (h *history) play(t *testing.T, commands ...string) {
	t.Helper()
	for _, command := range commands {
		if _, err := h.do(strings.Fields(command)); err != nil {
			t.Fatalf("%s: %v", command, err)
		}
	}
}

// do does what a command says, and returns what it prints.
func (h *history) do(words []string) (string, error) {
	h.ownRead = words[0] == "own"
	if h.ownRead {
		words = words[1:]
	}
	command, at, _ := strings.Cut(words[0], "@")
	args := words[1:]
	seq := func() Seq {
		if n, err := strconv.Atoi(at); err == nil {
			return Seq(n)
		}
		return h.seq()
	}

	switch command {
	case "new":
		*h = *newHistory(true, "")
	case "doc":
		if slices.Equal(args, []string{"!"}) {
			h.record(Read{}, Outcome{Seq: seq(), Err: errors.New("unread")})
			break
		}
		h.beforeDocument = h.Snapshot
		h.document(strings.Join(args, " "), seq())
	case "live":
		for _, word := range args {
			h.version(word, seq(), h.Snapshot)
		}
	case "list":
		h.list(args[0], args[1:], seq(), h.Snapshot)
	case "prefer":
		h.Snapshot = h.WithGroup(args[1], args[2:], args[0], h.seq(), h.Snapshot)
	case "ask":
		h.query = KindQuery(schema.GroupKind{Group: args[0], Kind: args[1]}, args[2:])
		if args[0] == "any" {
			h.query = ResourceQuery(schema.GroupVersionResource{Resource: args[1], Version: strings.Join(args[2:], "")})
		}
		h.progress = Progress{Began: h.now, Done: map[Read]Outcome{}}
	case "begin":
		h.readBegan, h.readFrom = h.seq(), h.Snapshot
	case "end":
		if args[0] == "list" {
			h.list(args[1], args[2:], h.readBegan, h.readFrom)
			break
		}
		for _, word := range args {
			h.version(word, h.readBegan, h.readFrom)
		}
	case "reset":
		h.Snapshot = h.Reset(h.seq())
	default:
		return h.print(command, args)
	}
	return h.text(), nil
}

// print returns what a command prints that changes nothing.
func (h *history) print(command string, args []string) (string, error) {
	notCurrent := func(current bool) string {
		if current {
			return ""
		}
		return ", not current"
	}

	switch command {
	case "find":
		m, current, err := h.RESTMapping(schema.GroupKind{Group: args[0], Kind: args[1]}, args[2:])
		if err != nil {
			return "nothing", nil
		}
		return m.GroupVersionKind.Version + notCurrent(current), nil

	case "all":
		var versions []string
		found, current, _ := h.RESTMappings(schema.GroupKind{Group: args[0], Kind: args[1]}, nil)
		for _, m := range found {
			versions = append(versions, m.GroupVersionKind.Version)
		}
		return strings.Join(versions, " ") + notCurrent(current), nil

	case "many":
		var versions []string
		kinds, _, _ := h.KindsFor(schema.GroupVersionResource{Resource: args[0]})
		for _, gvk := range kinds {
			versions = append(versions, gvk.GroupVersion().String())
		}
		return strings.Join(versions, " "), nil

	case "any":
		kind, current, err := h.KindFor(schema.GroupVersionResource{Resource: args[0], Version: strings.Join(args[1:], "")})
		if err != nil {
			return "nothing", nil
		}
		return fmt.Sprintf("%v %s%s", kind.GroupVersion(), kind.Kind, notCurrent(current)), nil

	case "missing":
		found := h.find(nil, &h.query, &missingReads{})
		h.progress.HasAnswer = len(found) > 0
		return cmp.Or(textOf(slices.Concat(h.MissingReads(h.query, h.progress)...)), "nothing"), nil

	case "due":
		all := len(args) > 0
		differing, dropped := h.RefreshReads(all, nil)
		return strings.TrimSpace(textOf(slices.Concat(differing...)) + " | " + textOf(dropped)), nil

	case "overlays":
		return fmt.Sprint(h.hasOverlays()), nil

	case "grown":
		return fmt.Sprint(h.Generation() > h.beforeDocument.Generation()), nil

	case "changes":
		var changes []string
		for _, c := range Diff(h.beforeDocument, h.Snapshot) {
			kind := c.Mapping.GroupVersionKind
			changes = append(changes, fmt.Sprintf("%s %v:%s %s", c.Type, kind.GroupVersion(), kind.Kind, c.Mapping.Resource.Resource))
		}
		return cmp.Or(strings.Join(changes, ", "), "none"), checkDiff(h.beforeDocument, h.Snapshot)
	}
	return "", errors.New("no such command")
}

// document reads the document. Each read of a legacy server's makes new groups, which only list.
func (h *history) document(text string, now Seq) {
	h.Snapshot = h.WithDocument(h.parse(text), now)
	h.record(Read{}, Outcome{Seq: now})
}

// version reads a version live. The read began at now, when from was known.
func (h *history) version(word string, now Seq, from *Snapshot) {
	group, v := parseVersion(word)
	found := VersionResult{Table: v.Table, Err: v.Err}
	h.Snapshot = h.WithVersion(group, v.Name, found, now, from)
	h.record(ReadVersion(group, v.Name), Outcome{Seq: now, Removed: found.NotFound()})
}

// list reads group discovery, as version reads a version.
func (h *history) list(group string, versions []string, now Seq, from *Snapshot) {
	h.Snapshot = h.WithGroup(group, versions, strings.Join(versions[:min(1, len(versions))], ""), now, from)
	h.record(ReadGroup(group), Outcome{Seq: now, Versions: versions})
}

// record notes how a read has ended, if it is the lookup's own.
func (h *history) record(r Read, o Outcome) {
	if h.ownRead {
		h.progress.Done[r] = o
	}
}

func (h *history) parse(text string) *Document {
	var order []string
	of := map[string][]string{} // the words of each group
	for _, word := range strings.Fields(text) {
		if h.legacy {
			word, _, _ = strings.Cut(strings.ReplaceAll(word, "!", ""), ":")
		}
		name, _, _ := strings.Cut(word, "/")
		if of[name] == nil {
			order = append(order, name)
		}
		of[name] = append(of[name], word)
	}
	var groups []*Group
	for _, name := range order {
		key := strings.Join(of[name], " ")
		if h.legacy || h.groupOf[key] == nil {
			var versions []Version
			for _, word := range of[name] {
				_, v := parseVersion(word)
				versions = append(versions, v)
			}
			h.groupOf[key] = NewGroup(name, versions[0].Name, versions)
		}
		groups = append(groups, h.groupOf[key])
	}
	return h.doc.Successor(groups, !h.legacy)
}

func parseVersion(word string) (group string, v Version) {
	group, rest, _ := strings.Cut(word, "/")
	name, kinds, isRead := strings.Cut(rest, ":")
	if v.Name = strings.TrimSuffix(name, "!"); v.Name != name {
		v.Err = errors.New("unread")
	}
	if isRead {
		v.Table = tableOf(kinds)
	}
	return group, v
}

// tableOf is the table of some kinds.
func tableOf(kinds string) *Table {
	var resources []Resource
	for _, kind := range strings.FieldsFunc(kinds, func(r rune) bool { return r == ',' }) {
		kind, verb, _ := strings.Cut(kind, "=")
		kind, cluster := strings.CutSuffix(kind, "*")
		kind, names, _ := strings.Cut(kind, "~")
		resource, singular, _ := strings.Cut(names, "~")
		resources = append(resources, Resource{
			Name: cmp.Or(resource, strings.ToLower(kind)+"s"), Singular: cmp.Or(singular, strings.ToLower(kind)),
			Kind: kind, Namespaced: !cluster, Verbs: Verbs(0).With(verb),
		})
	}
	return NewTable(resources)
}

// text writes down what is known.
func (s *Snapshot) text() string {
	var all []string
	for _, g := range s.groups {
		for i := range g.versions {
			all = append(all, s.versionText(g, i))
		}
	}
	return strings.Join(all, " ")
}

func (s *Snapshot) versionText(g *Group, i int) string {
	v := g.versions[i]
	text := g.name + "/" + v.Name
	if g.removed(i) {
		text += "-"
	}
	if s.readsOf(g, i).listedAgain() {
		text += "?"
	}
	if v.Err != nil {
		text += "!"
	}
	if v.Table != nil {
		text += ":" + strings.Join(slices.Collect(v.Table.kindNames()), ",")
	}
	if g.overlay == nil {
		return text
	}
	reads, documented := s.readsOf(g, i), s.documented(g.name)
	ofDocument := documented.indexOf(v.Name) >= 0 && documented.table(v.Name).sameRows(v.Table)
	if reads.answered > 0 && (reads.answered == reads.tried || !ofDocument) {
		text += fmt.Sprintf("@%d", reads.answered)
	}
	return text
}

// textOf writes down reads: a/v1 for a version, a/ for the list of a group.
func textOf(reads []Read) string {
	var all []string
	for _, r := range reads {
		all = append(all, r.Group+"/"+r.Version)
	}
	return strings.Join(all, " ")
}
