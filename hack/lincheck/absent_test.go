// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"slices"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// checkNoMatch checks every group that the lookup asks for: a read within the
// lookup must have shown that the kind is not there.
func (v *view) checkNoMatch(o *Op) []Violation {
	var list []Violation
	for _, group := range o.groups() {
		if v.Peer && group == groupBatch && v.troubled(o) || v.believesAGateway(o) {
			continue // without a document nobody knows of peers
		}
		p := proof{v, o, group, v.within(o)}
		rule := RuleGroup
		if len(o.Versions) > 0 {
			rule = RuleVersion
		}
		if why := p.missing(); why != "" {
			list = append(list, Violation{rule, o, why})
		}
	}
	return list
}

// believesAGateway reports whether a lookup met the 404 of a gateway that had lost its route for a
// moment, and had it again when the document was read. Nobody can tell that from the API server's
// own 404 where that has no Audit-Id (R6).
func (v *view) believesAGateway(o *Op) bool {
	return v.NoIDs && slices.ContainsFunc(v.requests, func(r *Request) bool {
		lost := r.live() && r.Fault != nil && r.Fault.Kind.String() == lostRoute && slices.Contains(o.groups(), r.Group)
		return lost && overlaps(o, r.Start, r.End) && slices.ContainsFunc(v.within(o), func(read *Request) bool { return read.Doc && r.End.before(read.End) })
	})
}

var lostRoute = fakeapi.LostRoute().String()

// A proof holds the reads by which a lookup may say that a kind is not in a group.
type proof struct {
	*view
	op    *Op
	group int
	reads []*Request
}

// missing returns what the proof lacks, or "" if it is complete.
func (p proof) missing() string {
	switch {
	case p.byDocument() && p.document():
		return ""
	case p.liveGroupIsGone():
		return ""
	case len(p.op.Versions) > 0:
		return p.missingVersions(p.op.versions())
	case p.neverListed():
		return ""
	default:
		return p.missingGroup()
	}
}

// byDocument reports whether the document alone may be believed: by lookups that
// search groups which they do not name, and by the first of all.
func (p proof) byDocument() bool {
	return groupNames[p.group] != p.op.Group || p.op.Call.before(p.read)
}

// document reports whether a document that was read does not have the kind; on a
// legacy server, nor any of the versions that it lists.
func (p proof) document() bool {
	return p.any(func(r *Request) bool {
		return r.Doc && !slices.ContainsFunc(p.op.versions(), func(version int) bool {
			told := p.says(r, p.group, version, p.op.Name)
			return told == present || told == unknown && !p.absentLive(version)
		})
	})
}

func (p proof) any(is func(*Request) bool) bool { return slices.ContainsFunc(p.reads, is) }

func (p proof) absentLive(version int) bool {
	return p.any(func(r *Request) bool { return r.live() && p.says(r, p.group, version, p.op.Name) == absent })
}

func (p proof) liveGroupIsGone() bool {
	return p.any(func(r *Request) bool { return r.Group == p.group && r.Version < 0 && r.Code == 404 })
}

func (p proof) missingVersions(versions []int) string {
	missing := filter(versions, func(version int) bool { return !p.absentLive(version) })
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("no live read of %s %v within the lookup shows it absent", groupNames[p.group], namesOf(missing))
}

// neverListed reports whether the document that was read does not list the group
// and the mapper may not have known it either.
func (p proof) neverListed() bool {
	return !p.knows() && p.any(func(r *Request) bool { return r.Doc && !r.World.lists(p.group) })
}

// knows reports whether the mapper must have known the group when the lookup
// began: it was told of it, and has been told nothing else since, or at the same time.
func (p proof) knows() bool {
	sure := 0
	var lost Stamp // when the last read ended that has told that it is gone
	for _, r := range p.requests {
		if r.failed() || r.live() && r.Group != p.group || !r.live() && !r.Doc || !r.End.before(p.op.Return) {
			continue
		}
		before := p.previous[r]
		switch served := r.Code != 404 && r.World.lists(p.group); {
		case served && p.closed(r, p.op) && p.clean[p.period[r]] && lost.before(r.Start):
			sure = p.period[r]
		case !served && (r.live() || before != nil && before.World.lists(p.group)):
			sure, lost = 0, r.End
		}
	}
	return sure > 0
}

// missingGroup returns what the proof of a lookup without a version in a known
// group lacks. It needs the list of the group and each of its versions. A kind that moves
// from one version to another meanwhile may be absent from each of them when that is read.
func (p proof) missingGroup() string {
	if p.listIsLeft() {
		return p.missingVersions(p.versionsRead())
	}
	why := "no live list of " + groupNames[p.group] + " within the lookup"
	for _, r := range p.reads {
		if r.Group == p.group && r.Version < 0 {
			if why = p.missingVersions(r.World.versions(p.group)); why == "" {
				break
			}
		}
	}
	return why
}

// listIsLeft reports whether the lookup has found a known version gone. That leaves the
// list of the group for the next lookup without a version (rule R3 in DESIGN.md).
func (p proof) listIsLeft() bool {
	return len(p.op.Versions) == 0 && p.any(func(r *Request) bool {
		return r.Group == p.group && r.Version >= 0 && r.Code == 404 && p.listedBefore(r)
	})
}

// listedBefore reports whether the version that r is about had been listed or read before.
func (p proof) listedBefore(r *Request) bool {
	return slices.ContainsFunc(p.requests, func(told *Request) bool {
		about := told.Doc || told.Group == p.group && (told.Version < 0 || told.Version == r.Version)
		return about && !told.failed() && told.End.before(r.End) && told.World.has(p.group, r.Version)
	})
}

// versionsRead lists the versions that were read live.
func (p proof) versionsRead() []int {
	return filter(allVersions, func(version int) bool {
		return p.any(func(r *Request) bool { return r.Group == p.group && r.Version == version })
	})
}

// during reports whether so holds for the world at some moment between from and
// until.
func during(changes []Change, from, until Stamp, so func(World) bool) bool {
	for i, c := range changes {
		ended := i+1 < len(changes) && changes[i+1].before(from)
		if !ended && c.before(until) && so(c.World) {
			return true
		}
	}
	return false
}
