// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// server is what a lookup's reads find, in the words of history. In live, a/v1! is
// a version that does not answer.
type server struct {
	document string
	live     string // what the document says, if empty
	noLists  bool   // lists of groups do not answer
}

// proof is one lookup, which makes the reads that are missing.
type proof struct {
	*history
	server   server
	q        Query
	progress Progress
	reads    []string // round by round
	requests int
}

// prove makes a lookup as package reload does and writes down its reads, each
// round's after the other's, what it ends in, and how many requests it took.
func (h *history) prove(on server, q Query) string {
	if on.live == "" {
		on.live = on.document
	}
	p := h.lookup(on, q)
	reads := strings.Join(p.reads, "; ")
	if reads == "" {
		reads = "nothing"
	}
	return fmt.Sprintf("%s → %s (%d)", reads, p.answer(), p.requests)
}

// lookup makes a lookup and returns how it went.
func (h *history) lookup(on server, q Query) *proof {
	p := &proof{history: h, server: on, q: q, progress: Progress{Done: map[Read]Outcome{}}}
	p.run()
	return p
}

func (p *proof) run() {
	for len(p.reads) < 20 {
		if p.settled() {
			return
		}
		reads := p.Missing(p.q, p.progress)
		if len(reads) == 0 {
			return
		}
		p.round(reads)
	}
}

// round makes the reads of a round. On an aggregated server it ends with the one
// that settles the lookup.
func (p *proof) round(reads []Read) {
	var made []string
	for _, r := range reads {
		p.make(r)
		made = append(made, readText(r))
		if !p.legacy && p.settled() {
			break
		}
	}
	p.reads = append(p.reads, strings.Join(made, " "))
}

// make makes one read and notes how it ended.
func (p *proof) make(r Read) {
	o := Outcome{Tick: p.now + 1, Times: p.progress.Done[r].Times + 1, Known: !p.Empty()}
	p.requests++
	switch r.Part {
	case PartDocument:
		p.requests++
		p.document(p.server.document)
	case PartCore, PartNamed:
		p.halfDocument(p.server.document, r.Part)
	case PartList:
		o.Absent, o.Err = p.makeList(r.Group)
	case PartVersion:
		o.Known = p.Serves(r.Group, r.Version)
		o.Absent, o.Err = p.makeVersion(r.Group + "/" + r.Version)
	}
	p.progress.Done[r] = o
}

func (p *proof) makeList(name string) (absent bool, err error) {
	if p.server.noLists {
		return false, errUnread
	}
	var versions []string
	for _, word := range strings.Fields(p.server.live) {
		if group, v := parseVersion(word); group == name {
			versions = append(versions, v.Name)
		}
	}
	p.group(name, versions...)
	return len(versions) == 0, nil
}

func (p *proof) makeVersion(name string) (absent bool, err error) {
	words := strings.Fields(p.server.live)
	at := slices.IndexFunc(words, func(word string) bool {
		group, v := parseVersion(word)
		return group+"/"+v.Name == name
	})
	switch {
	case at < 0:
		p.live(name)
		return true, nil
	case strings.HasSuffix(words[at], "!"):
		p.fails(name)
		return false, errUnread
	default:
		p.live(words[at])
		return false, nil
	}
}

func readText(r Read) string {
	switch r.Part {
	case PartDocument:
		return "document"
	case PartCore:
		return "/api"
	case PartNamed:
		return "/apis"
	case PartList:
		return r.Group + "/"
	default:
		return r.Group + "/" + r.Version
	}
}

// find asks the snapshot.
func (p *proof) find() (gv schema.GroupVersion, settled bool, err error) {
	if !p.q.ByResource {
		m, settled, err := p.RESTMapping(schema.GroupKind{Group: p.q.Group, Kind: p.q.Name}, p.q.Versions)
		if err != nil {
			return gv, settled, err
		}
		return m.GroupVersionKind.GroupVersion(), settled, nil
	}
	gvr := schema.GroupVersionResource{Group: p.q.Group, Resource: p.q.Name}
	if len(p.q.Versions) > 0 {
		gvr.Version = p.q.Versions[0]
	}
	gvk, settled, err := p.KindFor(gvr)
	return gvk.GroupVersion(), settled, err
}

func (p *proof) settled() bool {
	_, settled, err := p.find()
	p.progress.Found = err == nil
	return settled && !p.Returned(p.q, p.progress)
}

// answer is the version in which something is found, "no match", or "failed" if a
// version that could not be read may have it.
func (p *proof) answer() string {
	gv, _, err := p.find()
	if err == nil {
		return gv.Group + "/" + gv.Version
	}
	for _, o := range p.progress.Done {
		if o.Err != nil {
			return "failed"
		}
	}
	for _, g := range p.GroupsOf(p.q) {
		for _, v := range g.versions {
			if v.Err != nil && p.q.wants(v.Name) && !p.progress.done(versionOf(g.name, v.Name)) {
				return "failed"
			}
		}
	}
	return "no match"
}
