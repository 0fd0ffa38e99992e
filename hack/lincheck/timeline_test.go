// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"slices"
	"strings"
)

// A timeline is a history as lines. It has only what is about the groups of op.
type timeline struct {
	op    *Op
	lines []line
}

type line struct {
	Stamp
	text string
}

// Timeline returns what a history has about the groups of op, in the order of time.
func (h *History) Timeline(op *Op) string {
	t := timeline{op: op}
	t.worlds(h.Worlds, "served")
	t.worlds(h.Docs, "document")
	for _, f := range h.Faults {
		if f.Group == theDocument || t.about(f.Group) {
			t.add(f.From, "        fault begins: %s", f)
			t.add(f.Until, "        fault ends: %s", f)
		}
	}
	for _, r := range h.Requests {
		if r.live() && !t.about(r.Group) {
			continue
		}
		t.add(r.Start, "      GET %s", r.Path)
		if r.End != (Stamp{}) {
			t.add(r.End, "      GET %s (since %d): %s", r.Path, r.Start.Seq, t.outcome(r))
		}
	}
	for _, o := range h.Ops {
		mark := map[bool]string{true: "  <===="}[o == op]
		if !o.lookup() {
			t.add(o.Call, "client %d  %s", o.Client, o)
		} else if slices.ContainsFunc(o.groups(), t.about) {
			t.add(o.Call, "client %d  %s%s", o.Client, o, mark)
			t.add(o.Return, "client %d  %s (since %d) = %s%s", o.Client, o, o.Call.Seq, o.answer(), mark)
		}
	}
	slices.SortFunc(t.lines, func(a, b line) int { return a.Seq - b.Seq })
	var text strings.Builder
	for _, l := range t.lines {
		fmt.Fprintf(&text, "%6d %12s  %s\n", l.Seq, l.At, l.text)
	}
	return text.String()
}

func (t *timeline) add(at Stamp, format string, args ...any) {
	t.lines = append(t.lines, line{at, fmt.Sprintf(format, args...)})
}

func (t *timeline) about(group int) bool { return slices.Contains(t.op.groups(), group) }

func (t *timeline) worlds(changes []Change, what string) {
	for i, c := range changes {
		for g := range c.World {
			if t.about(g) && (i == 0 || c.World[g] != changes[i-1].World[g]) {
				t.add(c.Stamp, "        %s  %s", what, c.World.groupString(g))
			}
		}
	}
}

func (t *timeline) outcome(r *Request) string {
	switch {
	case r.Err != nil:
		return r.Err.Error()
	case r.Fault != nil:
		return fmt.Sprintf("%d, fault %s", r.Code, r.Fault.Kind)
	case r.Code == 404:
		return "404"
	}
	var said []string
	for g := range r.World {
		if t.about(g) && (r.Doc || r.Group == g) {
			said = append(said, r.World.groupString(g))
		}
	}
	return fmt.Sprintf("%d %s", r.Code, strings.Join(said, " | "))
}
