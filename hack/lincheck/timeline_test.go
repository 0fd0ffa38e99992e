// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// Timeline returns what a history has about the groups of op, in the order of time.
func (h *History) Timeline(op *Op) string {
	lines := map[Stamp]string{}
	about := op.groups()
	of := func(w World, is func(group int) bool) string {
		groups := filter(about, is)
		var said []string
		for _, g := range groups {
			said = append(said, w.groupString(g))
		}
		return strings.Join(said, " | ")
	}
	for what, changes := range map[string][]Change{"served": h.Worlds, "document": h.Docs} {
		for i, c := range changes {
			if text := of(c.World, func(g int) bool { return i == 0 || c.World[g] != changes[i-1].World[g] }); text != "" {
				lines[c.Stamp] = "        " + what + "  " + text
			}
		}
	}
	for _, f := range h.Faults {
		if f.Group == theDocument || slices.Contains(about, f.Group) {
			lines[f.From], lines[f.Until] = "        fault begins: "+f.String(), "        fault ends: "+f.String()
		}
	}
	for _, r := range h.Requests {
		if r.live() && !slices.Contains(about, r.Group) {
			continue
		}
		said := fmt.Sprintf("%d %s", r.Code, of(r.World, func(g int) bool { return r.Doc || r.Group == g }))
		switch {
		case r.Err != nil:
			said = r.Err.Error()
		case r.Fault != nil:
			said = fmt.Sprintf("%d, fault %s", r.Code, r.Fault.Kind)
		case r.Code == http.StatusNotFound:
			said = "404"
		}
		lines[r.Start] = "      GET " + r.Path
		lines[r.End] = fmt.Sprintf("      GET %s (since %d): %s", r.Path, r.Start.Seq, said)
	}
	for _, o := range h.Ops {
		mark := map[bool]string{true: "  <===="}[o == op]
		if !o.lookup() || slices.ContainsFunc(o.groups(), func(g int) bool { return slices.Contains(about, g) }) {
			lines[o.Call] = fmt.Sprintf("client %d  %s%s", o.Client, o, mark)
			lines[o.Return] = fmt.Sprintf("client %d  %s (since %d) = %s%s", o.Client, o, o.Call.Seq, o.answer(), mark)
		}
	}
	delete(lines, Stamp{}) // of what has not ended
	var text strings.Builder
	for _, at := range slices.SortedFunc(maps.Keys(lines), func(a, b Stamp) int { return a.Seq - b.Seq }) {
		fmt.Fprintf(&text, "%6d %12s  %s\n", at.Seq, at.At, lines[at])
	}
	return text.String()
}
