// SPDX-License-Identifier: Apache-2.0

package snapshot

// Part is the part of the server that a read is about.
type Part int

// The parts of the server.
const (
	PartDocument Part = iota // /api and /apis, one after the other
	PartGroup                // /apis/<group>: group discovery, the versions of one group
	PartVersion              // /apis/<group>/<version>: what one version serves
)

// String returns the name of the part in logs and metrics. There group discovery is a list.
func (p Part) String() string { return [...]string{"document", "list", "version"}[p] }

// Read is one read of the server. It is comparable: lookups that need equal reads share
// one. The zero Read is that of the document.
type Read struct {
	Part           Part
	Group, Version string // Group of group discovery, both of a version
}

// ReadDocument is the read of the document.
var ReadDocument = Read{Part: PartDocument} //nolint:gochecknoglobals // A constant, which Go has not for structs.

// ReadVersion returns the read of a version's own path.
func ReadVersion(group, version string) Read {
	return Read{Part: PartVersion, Group: group, Version: version}
}

// ReadGroup returns the read of group discovery.
func ReadGroup(group string) Read { return Read{Part: PartGroup, Group: group} }

// Outcome is how a read has ended.
type Outcome struct {
	Seq     Seq   // when it began
	Err     error // why it failed
	Removed bool  // it found that a known version was removed

	Versions []string // those that group discovery lists; others may have published a younger one
}

// VersionResult is what a live read of a version has found: what it serves, or an error, or
// neither if the server answered that there is no such version.
type VersionResult struct {
	Table *Table
	Err   error
}

// NotFound reports whether the server answered that there is no such version.
func (f VersionResult) NotFound() bool { return f.Table == nil && f.Err == nil }

// Progress is how far a lookup has come.
type Progress struct {
	Began     Seq              // reads that began later count; 0: nothing was ever read or reset
	HasAnswer bool             // it knows an answer, which is not current
	Done      map[Read]Outcome // the reads that it has made, each once
}
