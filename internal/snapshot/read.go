// SPDX-License-Identifier: Apache-2.0

package snapshot

import "slices"

// Part is the part of the server that a read is about.
type Part int

// The parts of the server.
const (
	PartDocument Part = iota // /api and /apis, one after the other
	PartList                 // /apis/<group>: the versions of one group
	PartVersion              // /apis/<group>/<version>: what one version serves
)

// String returns the name of the part in logs and metrics.
func (p Part) String() string { return [...]string{"document", "group", "version"}[p] }

// Read is one read of the server. It is comparable: lookups that need equal reads share
// one.
type Read struct {
	Part           Part
	Group, Version string // Group of a list, both of a version
}

// Outcome is how the last of a lookup's own reads of one part has ended.
type Outcome struct {
	Tick   Tick  // when it began
	Times  int   // how often the lookup has made this read
	Err    error // why it failed
	Silent bool  // it failed because it got no answer
	Gone   bool  // it found a known version gone
}

// Progress is how far a lookup has come.
type Progress struct {
	Began Tick             // reads that began later count; 0: nothing was ever read or reset
	Found bool             // the snapshot has an answer, current or not
	Done  map[Read]Outcome // the reads that it has made; Note adds to it

	made map[string][]Read // those of each group
}

// Note records how a read has ended.
func (p *Progress) Note(r Read, o Outcome) {
	if _, again := p.Done[r]; !again && r.Part != PartDocument {
		if p.made == nil {
			p.made = map[string][]Read{}
		}
		p.made[r.Group] = append(p.made[r.Group], r)
	}
	p.Done[r] = o
}

// Any reports whether a read of the group has ended so.
func (p *Progress) Any(group string, so func(Outcome) bool) bool {
	return slices.ContainsFunc(p.made[group], func(r Read) bool { return so(p.Done[r]) })
}
