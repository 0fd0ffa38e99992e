// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"maps"
	"slices"
	"strings"
)

// model is what is known in the plainest form: the words of the last document, and
// beside them what reads have found, changed in place. It leaves out the order of
// versions and groups.
type model struct {
	core, named Tick
	groups      map[string]*modelGroup
}

func (m *model) half(group string) Tick {
	if group == "" {
		return m.core
	}
	return m.named
}

func (m *model) group(name string) *modelGroup {
	if m.groups[name] == nil {
		m.groups[name] = &modelGroup{found: map[string]modelVersion{}}
	}
	return m.groups[name]
}

// document records a read of the document, or of half of it.
func (m *model) document(text string, core, named Tick) {
	then := map[bool]Tick{true: m.core, false: m.named}
	m.core, m.named = max(core, m.core), max(named, m.named)
	says := map[string][]string{}
	for _, words := range words(text) {
		name, _, _ := strings.Cut(words[0], "/")
		says[name] = words
		m.group(name)
	}
	for name, g := range m.groups {
		if m.half(name) == then[name == ""] && slices.Equal(g.words, says[name]) {
			continue // its half was not read
		}
		g.hear(says[name], then[name == ""], m.half(name))
	}
}

// live records a live read of a version: of its kinds, or that it is not served.
func (m *model) live(group, version string, served bool, kinds string, now Tick) {
	g := m.group(group)
	v := g.found[version]
	switch {
	case now <= v.read || !served && !m.has(group):
	case served:
		next := modelVersion{table: true, kinds: kinds, read: now, live: true}
		if v.failed > now {
			next.failed = v.failed
		}
		g.found[version] = next
	default:
		g.gone(version, now)
	}
}

func (m *model) failed(group, version string, now Tick) {
	g := m.group(group)
	v := g.found[version]
	if !slices.Contains(g.visible(), version) && !v.gone || now <= max(v.read, v.failed) {
		return
	}
	v.failed = now
	g.found[version] = v
}

func (m *model) lists(group string, names []string, now Tick) {
	if g := m.group(group); now > g.list && (len(names) > 0 || m.has(group)) {
		g.list, g.names, g.best = now, names, append(slices.Clone(names), "")[0]
	}
}

// withoutDropped forgets the groups that the document has dropped and that nobody has seen since.
func (m *model) withoutDropped() {
	maps.DeleteFunc(m.groups, func(_ string, g *modelGroup) bool {
		for _, v := range g.found {
			if v.live {
				return false
			}
		}
		return g.words == nil
	})
}

// overtaken records a live read that a document has overtaken.
func (m *model) overtaken(r Read, now Tick) {
	g := m.group(r.Group)
	if r.Part == PartList && g.list < now {
		g.list, g.names, g.best = 0, nil, ""
	}
	if v, ok := g.found[r.Version]; ok && v.read < now {
		delete(g.found, r.Version)
	}
}

// has reports whether anything is left of a group.
func (m *model) has(group string) bool {
	g := m.groups[group]
	return g != nil && (g.words != nil || len(g.visible()) > 0)
}

// forgetEmpty forgets groups of which nothing is left.
func (m *model) forgetEmpty() {
	maps.DeleteFunc(m.groups, func(name string, _ *modelGroup) bool { return !m.has(name) })
}

// text is Snapshot.text in no order.
func (m *model) text() []string {
	var all []string
	for group, g := range m.groups {
		for _, name := range g.visible() {
			all = append(all, g.text(group, name))
		}
	}
	slices.Sort(all)
	return all
}
