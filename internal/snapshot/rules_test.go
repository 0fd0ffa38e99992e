// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
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
// arrow the command must print. Each story begins with a mapper that knows nothing.
//
//	new legacy              a server without the aggregated document
//	doc WORDS               a read of the document
//	live WORDS              live reads of versions, one after the other
//	list GROUP VERSION...   a live read of a list; the first version is the preferred one
//	prefer VERSION GROUP VERSION...  the same, with another preferred version
//	doc@5, live@5, list@5   one that began at 5
//	begin, end WORDS        live reads, from their beginning to their end
//	end list GROUP VERSION...  that of a list
//	reset [GROUP]           what it says
//	ask GROUP KIND [VERSION...], ask any RESOURCE [VERSION]  a lookup begins
//	its live WORDS, its list GROUP VERSION..., its doc WORDS  reads of that lookup; others are not
//
// These print what is known; newHistory says how. Others print something else:
//
//	find GROUP KIND [VERSION...]  the version in which a kind is found
//	all GROUP KIND                all of these
//	many RESOURCE                 the groups and versions in which a lookup without a group finds it
//	pending                       the groups whose reset is pending
//	due [all]                     what a refresh reads, with a subscriber to all; behind the bar in turn
//	any RESOURCE [VERSION]        the group and version in which such a lookup finds it first
//	left                          the reads that the lookup still needs
//	overlaid                      whether a group is not the document's own
//	changes                       what changed since the last document but one
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
		command, want, checked := strings.Cut(strings.TrimSpace(line), "→")
		words := strings.Fields(command)
		if len(words) == 0 || words[0] == "#" {
			continue
		}
		got, err := h.do(words[0], words[1:])
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if want = strings.TrimSpace(want); checked && got != want {
			t.Errorf("%s: got %q, want %q; known %s", strings.TrimSpace(command), got, want, h.text())
		}
		if err := checkInvariants(h.Snapshot); err != nil {
			t.Errorf("after %s: %v", strings.TrimSpace(command), err)
		}
	}
}

// do does what a command says, and returns what it prints.
func (h *history) do(command string, args []string) (string, error) {
	command, at, _ := strings.Cut(command, "@")
	tick := func() Tick {
		if n, err := strconv.Atoi(at); err == nil {
			return Tick(n)
		}
		return h.tick()
	}
	if h.its = command == "its"; h.its {
		command, args = args[0], args[1:]
	}
	switch command {
	case "new":
		*h = *newHistory(true, "")
	case "doc":
		h.before = h.Snapshot
		h.documentAt(strings.Join(args, " "), tick())
	case "live":
		for _, word := range args {
			h.liveAt(word, tick(), h.Snapshot)
		}
	case "list":
		h.groupAt(tick(), h.Snapshot, args[0], args[1:]...)
	case "prefer":
		h.Snapshot = h.WithList(args[1], args[2:], args[0], h.tick(), h.Snapshot)
	case "ask":
		h.asked = KindQuery(schema.GroupKind{Group: args[0], Kind: args[1]}, args[2:])
		if args[0] == "any" {
			h.asked = ResourceQuery(schema.GroupVersionResource{Resource: args[1], Version: strings.Join(args[2:], "")})
		}
		h.progress = Progress{Began: h.now, Done: map[Read]Outcome{}}
	case "begin":
		h.began, h.from = h.tick(), h.Snapshot
	case "end":
		if args[0] == "list" {
			h.groupAt(h.began, h.from, args[1], args[2:]...)
			break
		}
		for _, word := range args {
			h.liveAt(word, h.began, h.from)
		}
	case "reset":
		if len(args) == 0 {
			h.resetAll()
		}
		for _, group := range args {
			h.resetGroup(group)
		}
	default:
		return h.tell(command, args)
	}
	return h.text(), nil
}

// tell answers a question.
func (h *history) tell(command string, args []string) (string, error) {
	switch command {
	case "find":
		version, current := h.finds(args[0], args[1], args[2:]...)
		if version == "" {
			return "nothing", nil
		}
		return version + map[bool]string{false: ", not current"}[current], nil
	case "all":
		found, current, _ := h.RESTMappings(schema.GroupKind{Group: args[0], Kind: args[1]}, nil)
		versions := []string{}
		for _, m := range found {
			versions = append(versions, m.GroupVersionKind.Version)
		}
		return strings.Join(versions, " ") + map[bool]string{false: ", not current"}[current], nil
	case "many":
		return strings.Join(groupsWith(h.Snapshot, args[0]), " "), nil
	case "any":
		kind, current, err := h.KindFor(schema.GroupVersionResource{Resource: args[0], Version: strings.Join(args[1:], "")})
		if err != nil {
			return "nothing", nil
		}
		return kind.GroupVersion().String() + map[bool]string{false: ", not current"}[current], nil
	case "left":
		found, _ := h.finds(h.asked.Group, h.asked.Name, h.asked.Versions...)
		_, _, err := h.KindFor(schema.GroupVersionResource{Resource: h.asked.Name, Version: strings.Join(h.asked.Versions, "")})
		h.progress.Found = found != "" || h.asked.ByResource && err == nil
		return cmp.Or(textOf(slices.Concat(h.Next(h.asked, h.progress)...)), "nothing"), nil
	case "pending":
		pending := []string{}
		for _, g := range h.groups {
			if g.laid().reset > 0 {
				pending = append(pending, g.name)
			}
		}
		return cmp.Or(strings.Join(pending, " "), "none"), nil
	case "due":
		differing, dropped := h.Due(len(args) > 0)
		return strings.TrimSpace(textOf(slices.Concat(differing...)) + " | " + textOf(dropped)), nil
	case "overlaid":
		return fmt.Sprint(h.overlaid()), nil
	case "changes":
		changes := []string{}
		for _, c := range Diff(h.before, h.Snapshot) {
			m := c.Mapping
			changes = append(changes, fmt.Sprintf("%s %s/%s:%s %s", c.Type, m.Resource.Group, m.Resource.Version, m.GroupVersionKind.Kind, m.Resource.Resource))
		}
		return cmp.Or(strings.Join(changes, ", "), "none"), checkDiff(h.before, h.Snapshot)
	}
	return "", fmt.Errorf("no such command: %s", command)
}

// textOf writes down reads: a/v1 for a version, a/ for the list of a group.
func textOf(reads []Read) string {
	var all []string
	for _, r := range reads {
		all = append(all, r.Group+"/"+r.Version)
	}
	return strings.Join(all, " ")
}
