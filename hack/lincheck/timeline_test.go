// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"slices"
	"strings"
)

// Timeline returns the history as lines in the order of time. Unless op is nil, it
// has only what is about the groups of op.
func (h *History) Timeline(op *Op) string {
	t := timeline{op: op}
	for i, c := range h.Worlds {
		t.world(c, h.Worlds[max(0, i-1)].World, "served", i == 0)
	}
	for i, c := range h.Docs {
		t.world(c, h.Docs[max(0, i-1)].World, "document", i == 0)
	}
	for _, f := range h.Faults {
		t.fault(f)
	}
	for _, r := range h.Requests {
		t.request(r)
	}
	for _, o := range h.Ops {
		t.operation(o)
	}
	slices.SortFunc(t.lines, func(a, b line) int { return a.Seq - b.Seq })
	var text strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&text, "%6d %12s  %s\n", l.Seq, l.At, l.text)
	}
	return text.String()
}

type line struct {
	Stamp
	text string
}

type timeline struct {
	op    *Op
	lines []line
}

func (t *timeline) add(at Stamp, format string, args ...any) {
	t.lines = append(t.lines, line{at, fmt.Sprintf(format, args...)})
}

func (t *timeline) about(group int) bool {
	return t.op == nil || slices.Contains(t.op.groups(), group)
}

func (t *timeline) world(c Change, before World, what string, first bool) {
	for g := range c.World {
		if t.about(g) && (first || c.World[g] != before[g]) {
			t.add(c.Stamp, "        %s  %s", what, c.World.groupString(g))
		}
	}
}

func (t *timeline) fault(f *Fault) {
	if f.Group != theDocument && !t.about(f.Group) {
		return
	}
	about := "the document"
	if f.Group != theDocument {
		about = groupNames[f.Group]
	}
	t.add(f.From, "        fault of %s begins: %s", about, f.Name)
	t.add(f.Until, "        fault of %s ends: %s", about, f.Name)
}

func (t *timeline) request(r *Request) {
	if r.live() && !t.about(r.Group) {
		return
	}
	t.add(r.Start, "      GET %s", r.Path)
	if r.End == (Stamp{}) {
		return
	}
	t.add(r.End, "      GET %s (since %d): %s", r.Path, r.Start.Seq, t.outcome(r))
}

func (t *timeline) outcome(r *Request) string {
	var said []string
	for g := range r.World {
		if t.about(g) && (r.Doc || r.Group == g) && r.Code != 404 && !r.failed() {
			said = append(said, r.World.groupString(g))
		}
	}
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Fault != nil:
		return fmt.Sprintf("%d, fault %s", r.Code, r.Fault.Name)
	default:
		return fmt.Sprintf("%d %s", r.Code, strings.Join(said, " | "))
	}
}

func (t *timeline) operation(o *Op) {
	all := o.Kind == OpReset || t.op == nil
	if !all && !slices.ContainsFunc(o.groups(), t.about) && o.Kind != OpResetGroup {
		return
	}
	mark := ""
	if o == t.op {
		mark = "  <===="
	}
	t.add(o.Call, "client %d  %s%s", o.Client, o, mark)
	if o.lookup() {
		t.add(o.Return, "client %d  %s (since %d) = %s%s", o.Client, o, o.Call.Seq, o.answer(), mark)
	}
}
