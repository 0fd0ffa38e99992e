// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

type modelGroup struct {
	words []string // of the document; nil if it does not list the group
	list  Tick     // of the last live read of the group's list
	names []string // that it found, or that the document had when it dropped the group
	best  string   // the version that it prefers
	found map[string]modelVersion
}

// modelVersion is what reads have found of a version beyond the document.
type modelVersion struct {
	table      bool
	kinds      string
	read       Tick
	live, gone bool
	failed     Tick // when it failed since
}

// said returns what the document says of a version.
func (g *modelGroup) said(version string) (listed bool, says modelVersion, stale bool) {
	for _, word := range g.words {
		if _, v := parseVersion(word); v.Name == version {
			_, kinds, table := strings.Cut(word, ":")
			return true, modelVersion{table: table, kinds: kinds}, v.Err != nil
		}
	}
	return false, modelVersion{}, false
}

// everyName lists the versions that anything is known of.
func (g *modelGroup) everyName() []string {
	names := slices.Concat(g.names, slices.Collect(maps.Keys(g.found)))
	names = append(names, g.docNames()...)
	slices.Sort(names)
	return slices.Compact(names)
}

// hear applies a new document to a group. The document before was read at then.
func (g *modelGroup) hear(words []string, then, now Tick) {
	old := *g
	g.words = words
	if slices.Equal(old.words, words) {
		g.forgetFailures(now)
		g.forgetAgreed()
		g.forgetList()
		return // no news
	}
	defer g.forgetList()
	g.found = map[string]modelVersion{}
	for _, name := range old.everyName() {
		v := old.found[name]
		if _, says, _ := old.said(name); says.table && !v.table && !v.gone {
			v.table, v.kinds, v.read = true, says.kinds, then
			if v.failed < then {
				v.failed = 0
			}
		}
		listed, says, stale := g.said(name)
		switch {
		case words == nil && v.table,
			v.gone && listed,
			v.live && !v.gone && !listed && words != nil,
			listed && !says.table && v.failed > 0,
			v.live && says.table && says.kinds != v.kinds && !v.gone:
			if says.table && !v.gone {
				v.failed = 0 // it answers, as far as the document knows
			}
			g.found[name] = v
		case listed && !says.table && v.table:
			g.found[name] = v
		}
		if kept, ok := g.found[name]; ok && stale && kept.table && now > kept.read {
			kept.failed = now
			g.found[name] = kept
		}
	}
	g.names, g.best = nil, ""
	switch {
	case words == nil:
		g.best = old.preferred()
		g.names = slices.DeleteFunc(old.listing(), func(name string) bool {
			if old.list > 0 {
				return !slices.Contains(old.names, name)
			}
			_, found := g.found[name]
			return !found
		})
	case old.list > 0:
		g.best, g.names = old.best, old.names
	}
}

// listing lists the names of the document's list and of the live one, the one that
// counts for more before the other.
func (g *modelGroup) listing() []string {
	first, then := g.docNames(), g.names
	if g.listLeads() {
		first, then = then, first
	}
	return slices.Concat(first, slices.DeleteFunc(slices.Clone(then), func(name string) bool { return slices.Contains(first, name) }))
}

// listLeads reports whether the live list has all that the document has, but for what is gone.
func (g *modelGroup) listLeads() bool {
	return g.words == nil || g.list > 0 && !slices.ContainsFunc(g.docNames(), func(name string) bool {
		return !g.found[name].gone && !slices.Contains(g.names, name)
	})
}

// forgetList forgets a live list that has nothing to add to the document, where nothing
// else was found.
func (g *modelGroup) forgetList() {
	if g.words != nil && len(g.found) == 0 && g.sameList() {
		g.list, g.names, g.best = 0, nil, ""
	}
}

// preferred is the version that the server prefers: of the document, the first.
func (g *modelGroup) preferred() string {
	if g.listLeads() {
		return g.best
	}
	return g.docNames()[0]
}

// sameList reports whether the live list has nothing to add to the document.
func (g *modelGroup) sameList() bool {
	if g.listLeads() {
		return g.best == g.docNames()[0] && slices.Equal(g.names, g.docNames())
	}
	return !slices.ContainsFunc(g.names, func(name string) bool { return !g.docHas(name) })
}

func (g *modelGroup) docNames() (names []string) {
	for _, word := range g.words {
		_, v := parseVersion(word)
		names = append(names, v.Name)
	}
	return names
}

func (g *modelGroup) docHas(name string) bool {
	listed, _, _ := g.said(name)
	return listed
}

// forgetFailures forgets failures of what the document, read later, has.
func (g *modelGroup) forgetFailures(now Tick) {
	for name, v := range g.found {
		if _, says, _ := g.said(name); says.table && !v.gone && v.failed <= now {
			v.failed = 0
			g.found[name] = v
		}
	}
}

// forgetAgreed forgets what the document says just so.
func (g *modelGroup) forgetAgreed() {
	for name, v := range g.found {
		if _, says, _ := g.said(name); says.table && !v.gone && v.failed == 0 && (!v.live || v.kinds == says.kinds) {
			delete(g.found, name)
		}
	}
}

func (g *modelGroup) gone(version string, now Tick) {
	known := slices.Contains(g.everyName(), version)
	g.names = slices.DeleteFunc(g.names, func(name string) bool { return name == version })
	delete(g.found, version)
	if g.docHas(version) {
		g.found[version] = modelVersion{gone: true, live: true, read: now}
		return
	}
	if g.words != nil || !known {
		return
	}
	maps.DeleteFunc(g.found, func(_ string, v modelVersion) bool { return !v.live })
	if g.list == 0 {
		g.names = slices.DeleteFunc(g.names, func(name string) bool { _, ok := g.found[name]; return !ok })
	}
}

// visible lists the versions that are known.
func (g *modelGroup) visible() []string {
	return slices.DeleteFunc(g.everyName(), func(name string) bool {
		v, ok := g.found[name]
		return v.gone || ok && !v.table && !g.docHas(name) && !slices.Contains(g.names, name)
	})
}

func (g *modelGroup) text(group, name string) string {
	v, text := g.found[name], group+"/"+name
	_, says, stale := g.said(name)
	if v.failed > 0 || stale && !v.live {
		text += "!"
	}
	switch {
	case v.live:
		return text + fmt.Sprintf(":%s@%d", v.kinds, v.read)
	case v.table && v.read > 0:
		return text + fmt.Sprintf(":%s~%d", v.kinds, v.read)
	case says.table:
		return text + ":" + says.kinds
	}
	return text
}
