// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"slices"
)

// checkFound checks that each mapping in an answer is one that the mapper was
// told, by a read that nothing has outdated since.
func (v *view) checkFound(o *Op) []Violation {
	var list []Violation
	for _, f := range o.Found {
		if !slices.Contains(o.groups(), f.Group) || !slices.Contains(o.versions(), f.Version) || f.Kind != o.Name {
			list = append(list, Violation{RuleWrong, o, fmt.Sprintf("%s was not asked for", f)})
			continue
		}
		if rule, why := v.whyNot(o, f); why != "" {
			list = append(list, Violation{rule, o, f.String() + " " + why})
		}
	}
	return list
}

// whyNot looks for a read that an answer may come from. If there is none, it
// returns what is wrong with the best read.
func (v *view) whyNot(o *Op, f Found) (Rule, string) {
	told := filter(v.requests, func(r *Request) bool { return r.End.before(o.Return) && v.shows(r, f) })
	if len(told) == 0 {
		return RuleNeverServed, "was told by no answer that had arrived"
	}
	all, one := v.resets(o, f.Group)
	since := filter(told, func(r *Request) bool { return all.before(r.Start) })
	later := filter(since, func(r *Request) bool { return one.before(r.Start) })
	counting := filter(later, func(r *Request) bool { return v.counts(o, r, f.Group, all, one) })
	switch excused := v.troubled(o) || v.stillListed(o); {
	case excused: // the last good state is served, and a reset may be pending; but nothing that was outdated before
	case len(later) == 0:
		return RuleReset, fmt.Sprintf("was told by no answer since Reset (%d) and ResetGroup (%d)", all.Seq, one.Seq)
	case len(counting) == 0:
		return RuleGroupReset, fmt.Sprintf("was told by the document alone since ResetGroup (%d)", one.Seq)
	default:
		told = counting
	}
	reset := v.lastReset(o.Return)
	for _, r := range told {
		if v.outdatedBy(o, r, f, reset) == nil {
			return "", ""
		}
	}
	r := told[len(told)-1]
	by := v.outdatedBy(o, r, f, reset)
	return RuleOutdated, fmt.Sprintf("was told last by GET %s (since %d), which GET %s (since %d) had outdated before the lookup",
		r.Path, r.Start.Seq, by.Path, by.Start.Seq)
}

// served reports whether a world has what was found.
func (f Found) served(w World) bool { return f.matches(w[f.Group][f.Kind]) }

func (f Found) matches(s State) bool {
	return s.in(f.Version) && (!f.Scoped || s.Namespaced == f.Namespaced)
}

func (v *view) shows(r *Request, f Found) bool {
	return v.says(r, f.Group, f.Version, f.Kind) == present && f.served(r.World)
}

// counts reports whether r, which began after the resets, settles a ResetGroup: r
// must be a live read, or a document beside a live read. Without a Reset since
// then, a document that is no news cannot replace what that live read found, but in a
// built-in group, where it may tell what a peer serves. Beside another replica each document
// may be news: it differs from the one before.
func (v *view) counts(o *Op, r *Request, group int, all, one Stamp) bool {
	if one == (Stamp{}) || r.live() {
		return true
	}
	return (one.before(all) || builtIn(group) || v.Replicas || v.firstSeen(r, group, v.lastReset(o.Return)) == r) && v.readLive(group, one, o.Return)
}

// readLive reports whether a group was read live in a time.
func (v *view) readLive(group int, from, until Stamp) bool {
	return slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.Group == group && !r.failed() && from.before(r.Start) && r.End.before(until)
	})
}

// outdatedBy returns a read that outdates r for o, or nil. Such a read began after
// r was known, told otherwise, and was known itself when o began. Four things are
// no reason: a read before a Reset, even one during o, need not count any more; a
// document, which may be behind, does not outdate a live read; and what has become
// true again may be known from a document that was right all the time. And a 404 for a
// built-in version is the document's to decide, which is read again after it (rule R6).
func (v *view) outdatedBy(o *Op, r *Request, f Found, reset Stamp) *Request {
	if r.Doc && !v.Legacy && builtIn(f.Group) {
		return nil
	}
	seen := v.firstSeen(r, f.Group, reset)
	for _, newer := range v.requests {
		told := v.says(newer, f.Group, f.Version, f.Kind)
		if v.period[newer] > v.period[seen] && told != unknown && !v.shows(newer, f) && v.binding(newer, o, f.Group, f.Version) && (newer.live() || !seen.live()) &&
			reset.before(newer.Start) && !during(v.Worlds, newer.End, o.Return, f.served) {
			return newer
		}
	}
	return nil
}

// checkOrder checks that an answer leaves out no version that is known to serve the kind:
// none at all from RESTMappings, and from other lookups none that comes before what was found,
// in the order of the question, or in the server's.
func (v *view) checkOrder(o *Op) []Violation {
	if len(o.Found) == 0 || v.troubled(o) {
		return nil
	}
	best := o.Found[0]
	var list []Violation
	for _, group := range o.groups() {
		for _, version := range o.versions() {
			had := slices.ContainsFunc(o.Found, func(f Found) bool { return f.Group == group && f.Version == version })
			if had && o.Kind != OpMappings {
				return list
			}
			first := o.Kind == OpMappings || len(o.Versions) > 0 && group == best.Group || v.listedBoth(o, group, version, best)
			if !had && first && v.certain(o, group, version) {
				list = append(list, Violation{RuleOrder, o, fmt.Sprintf("%s/%s serves the kind, as was known", groupNames[group], versionNames[version])})
			}
		}
	}
	return list
}

// checkPlaces checks that no answer is chosen, among versions or groups that are not named, by a
// place that nobody told: a version that its path alone has told of stands nowhere until a list or
// a document is read that could have it, and so does its group until a document is.
func (v *view) checkPlaces(o *Op) []Violation {
	if len(o.Found) == 0 || v.troubled(o) {
		return nil
	}
	best := o.Found[0]
	var list []Violation
	for _, group := range o.groups() {
		for _, version := range o.versions() {
			same, another := group == best.Group, group != best.Group
			chosen := another || same && version != best.Version && len(o.Versions) == 0
			if !chosen || !v.certain(o, group, version) {
				continue
			}
			if !v.placed(o, group, version, another) || !v.placed(o, best.Group, best.Version, another) {
				list = append(list, Violation{RulePlace, o, fmt.Sprintf("%s/%s serves the kind, too, and nobody told which comes first", groupNames[group], versionNames[version])})
			}
		}
	}
	return list
}

// placed reports whether the mapper can know where a version stands in its group, or its group
// among the others: a list or a document has named it, or began after it was found.
func (v *view) placed(o *Op, group, version int, amongGroups bool) bool {
	found := slices.IndexFunc(v.requests, func(r *Request) bool {
		if amongGroups { // whichever of its versions has told of the group
			return r.live() && r.Group == group && r.Code != 404 && !r.failed()
		}
		return r.live() && r.Version >= 0 && v.says(r, group, version, o.Name) == present
	})
	return slices.ContainsFunc(v.requests, func(r *Request) bool {
		list := r.live() && r.Version < 0 && r.Group == group && !amongGroups
		named := r.World.has(group, version) || amongGroups && r.World.lists(group)
		return (list || r.Doc) && !r.failed() && r.End.before(o.Return) && (named || found >= 0 && v.requests[found].Start.before(r.Start))
	})
}

// listedBoth reports whether the last document or list that told of a version, before o
// ended, told of another one as well, and so of their order. So must all since the document
// first said so, and all of that busy period: which began last only the mapper knows.
func (v *view) listedBoth(o *Op, group, version int, other Found) bool {
	told := filter(v.requests, func(r *Request) bool {
		list := r.live() && r.Version < 0 && r.Group == group && r.Group == other.Group
		return (list || r.Doc) && !r.failed() && r.End.before(o.Return)
	})
	if len(told) == 0 {
		return false
	}
	since := v.period[v.firstSeen(told[len(told)-1], group, Stamp{})]
	return !slices.ContainsFunc(told, func(r *Request) bool {
		both := r.World.has(group, version) && r.World.has(other.Group, other.Version)
		return v.period[r] >= since && !(both && v.closed(r, o) && v.clean[v.period[r]])
	})
}

// certain reports whether the mapper must have known, when o began and all the
// time until it ended, that a version serves the kind: all reads have told so, or all since its own
// path has, after a busy period in which another read had not.
func (v *view) certain(o *Op, group, version int) bool {
	all, one := v.resets(o, group)
	sure, notBefore := false, -1
	for _, r := range v.requests {
		if r.Start.before(later(all, one)) || !r.End.before(o.Return) {
			continue
		}
		switch v.says(r, group, version, o.Name) {
		case present:
			news := notBefore < 0 || r.live() && v.period[r] > notBefore
			sure = sure || news && v.binding(r, o, group, version) && (r.live() || one == Stamp{})
		case absent:
			sure, notBefore = false, v.period[r]
		}
	}
	return sure
}
