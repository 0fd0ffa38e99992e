// SPDX-License-Identifier: Apache-2.0

package snapshot

// Tick numbers the reads and resets of one mapper in the order in which they began. A
// read takes its tick just before its first request. 0 stands for never.
type Tick uint64

// Part is the part of the server that a read is about.
type Part int

// The parts of the server.
const (
	PartDocument Part = iota // /api and /apis, one after the other
	PartCore                 // /api
	PartNamed                // /apis
	PartList                 // /apis/<group>: the versions of one group
	PartVersion              // /apis/<group>/<version>: what one version serves
)

// String returns the name of the part in logs and metrics.
func (p Part) String() string {
	return [...]string{
		PartDocument: "document", PartCore: "document", PartNamed: "document",
		PartList: "group", PartVersion: "version",
	}[p]
}

// Document reports whether the part is the document of all groups or half of it.
func (p Part) Document() bool { return p <= PartNamed }

// Read is one read of the server. It is comparable: lookups that need equal reads share
// one.
type Read struct {
	Part           Part
	Group, Version string // Group of a list, both of a version
}

func listOf(group string) Read { return Read{Part: PartList, Group: group} }

func versionOf(group, version string) Read {
	return Read{Part: PartVersion, Group: group, Version: version}
}

// Outcome is how the reads of one part that a lookup has made have ended.
type Outcome struct {
	Tick   Tick  // of the last of them
	Times  int   // how often it was read
	Err    error // why it could not be read
	Absent bool  // the server answered that there is no such thing
	Known  bool  // of a version: it was known before; of the document: anything was known before
}

// Progress is how far a lookup has come.
type Progress struct {
	Found bool             // the snapshot has an answer, settled or not
	Done  map[Read]Outcome // the reads that it has made itself, or waited for
}

// done reports whether the lookup has made the read.
func (p Progress) done(r Read) bool { return p.Done[r].Times > 0 }

// cold reports whether the lookup has read the mapper's very first document, and nothing
// that contradicts it.
func (p Progress) cold() bool {
	for r, o := range p.Done {
		if r.Part == PartVersion && o.Absent && o.Known {
			return false
		}
	}
	o := p.Done[Read{Part: PartDocument}]
	return o.Times > 0 && !o.Known
}

// halves returns the reads that include a half of the document.
func halves(half Part) [2]Read { return [2]Read{{Part: PartDocument}, {Part: half}} }

// document returns the lookup's own last read of a half of the document.
func (p Progress) document(half Part) Outcome {
	var last Outcome
	for _, r := range halves(half) {
		if o := p.Done[r]; o.Tick >= last.Tick && o.Times > 0 {
			last = o
		}
	}
	return last
}
