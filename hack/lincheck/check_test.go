// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A Rule is a promise that can be broken. The package comment explains them.
type Rule string

const (
	RuleVersion     Rule = "NoMatch without a live read of the version"
	RuleGroup       Rule = "NoMatch without a live read of the group"
	RuleNeverServed Rule = "never told"
	RuleReset       Rule = "older than a reset"
	RuleOutdated    Rule = "outdated"
	RuleOrder       Rule = "left out a version"
	RuleWait        Rule = "waits for what it does not need"
	RuleWrong       Rule = "answers another question"
	RuleError       Rule = "error without a fault"
	RulePanic       Rule = "panic"
	RuleHit         Rule = "hit that waits"
)

type Violation struct {
	Rule Rule
	Op   *Op
	Why  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: client %d (since %d) %s = %s: %s", v.Rule, v.Op.Client, v.Op.Call.Seq, v.Op, v.Op.answer(), v.Why)
}

// Check lists what is wrong with a history.
func Check(h *History) (list []Violation) {
	v := newView(h)
	for _, o := range h.Ops {
		if !o.lookup() {
			continue
		}
		list = append(list, v.checkWait(o)...)
		switch {
		case o.Panicked:
			list = append(list, Violation{RulePanic, o, o.Err.Error()})
		case o.NoMatch:
			list = append(list, v.checkNoMatch(o)...)
		case o.Err == nil:
			list = slices.Concat(list, v.checkFound(o), v.checkOrder(o), v.checkHit(o))
		case !v.troubled(o) && !v.stillListed(o):
			list = append(list, Violation{RuleError, o, "nothing that it asks for was failing"})
		}
	}
	return list
}

// checkHit checks that a lookup of one version which must be known takes no time.
func (v *view) checkHit(o *Op) []Violation {
	if o.Kind != OpMapping || len(o.Versions) != 1 || o.Return.At == o.Call.At {
		return nil
	}
	group := o.groups()[0]
	if v.resetBefore(o) != (Stamp{}) || !v.certain(o, group, o.versions()[0]) {
		return nil // when a reset is settled is the mapper's business
	}
	return []Violation{{RuleHit, o, fmt.Sprintf("it took %v", o.Return.At-o.Call.At)}}
}

// checkWait checks that at each moment of a lookup a request was under way that it may need,
// or waited to be made again.
func (v *view) checkWait(o *Op) []Violation {
	waits := o.Call.At
	for _, r := range v.requests {
		if r.Start.At > waits || !v.needs(o, r) {
			continue
		}
		decided := time.Duration(0)
		if r.Code == http.StatusNotFound && !v.Calm {
			decided = confirmAfter
		}
		waits = max(waits, r.End.At+decided)
	}
	if waits >= o.Return.At {
		return nil
	}
	return []Violation{{RuleWait, o, fmt.Sprintf("nothing that it needs was under way at %v, and it ended at %v", waits, o.Return.At)}}
}

// needs reports whether a lookup may need a request.
func (v *view) needs(o *Op, r *Request) bool {
	switch {
	case r.live():
		other := r.Version < 0 && len(o.Versions) == 1 || r.Version >= 0 && !slices.Contains(o.versions(), r.Version)
		return slices.Contains(o.groups(), r.Group) && (o.byPrefix() || !other)
	case o.byPrefix(), !v.settled(o), v.decides(o, r):
		return true
	}
	return len(o.Versions) == 0 && !proof{view: v, op: o, group: o.groups()[0]}.knows()
}

// decides reports whether a document may decide about a 404 that a lookup has met.
func (v *view) decides(o *Op, document *Request) bool {
	return slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.live() && r.Code == http.StatusNotFound && v.needs(o, r) && !document.End.before(r.End) && (v.NoIDs || v.undecided(r))
	})
}

// settled reports whether a document was read after the last reset before o ended, and before o began.
func (v *view) settled(o *Op) bool {
	reset := v.lastReset(o.Return)
	return slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.Doc && !r.failed() && reset.before(v.began[r]) && r.End.At < o.Call.At
	})
}

// checkNoMatch wants a proof for every group that the lookup asks for.
func (v *view) checkNoMatch(o *Op) (list []Violation) {
	rule := RuleGroup
	if len(o.Versions) > 0 {
		rule = RuleVersion
	}
	for _, group := range o.groups() {
		if v.Peer && group == groupBatch && v.troubled(o) {
			continue // without a document nobody knows of peers
		}
		reads := filter(v.requests, func(r *Request) bool { return !r.failed() && o.Call.before(r.Start) && r.End.before(o.Return) })
		if why := (proof{v, o, group, reads}).missing(); why != "" {
			list = append(list, Violation{rule, o, why})
		}
	}
	return list
}

// A proof holds the reads by which a lookup may say that a kind is not in a group: those
// that were sent and answered truly while it ran.
type proof struct {
	*view
	op    *Op
	group int
	reads []*Request
}

// missing returns what the proof lacks, or "" if it is complete.
func (p proof) missing() string {
	// The document may be believed by lookups that search groups which they do not name, and by the first of all.
	byDocument := groupNames[p.group] != p.op.Group || p.op.Call.before(p.read)
	switch {
	case byDocument && p.document():
		return ""
	case len(p.op.Versions) > 0:
		return p.missingVersions(p.op.versions())
	case !p.knows() && p.any(func(r *Request) bool { return r.Doc && !r.World.lists(p.group) }):
		return "" // never listed
	}
	return p.missingGroup()
}

// document reports whether a document does not have the kind; on a legacy server, nor any version that it lists.
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

func (p proof) missingVersions(versions []int) string {
	missing := filter(versions, func(version int) bool { return !p.absentLive(version) })
	if len(missing) == 0 {
		return ""
	}
	return fmt.Sprintf("no live read of %s %v within the lookup shows it absent", groupNames[p.group], namesOf(missing))
}

// knows reports whether the mapper must have known the group when the lookup
// began: it was told of it, and has been told nothing else since, or at the same time.
func (p proof) knows() (sure bool) {
	for _, r := range p.requests {
		if r.failed() || r.live() && r.Group != p.group || !r.live() && !r.Doc || !r.End.before(p.op.Return) {
			continue
		}
		before := p.previous[r]
		switch served := r.Code != 404 && r.World.lists(p.group); {
		case served:
			sure = sure || p.closed(r, p.op)
		case r.live() || before != nil && before.World.lists(p.group):
			sure = false
		}
	}
	return sure
}

// missingGroup returns what the proof of a lookup without a version in a known
// group lacks. It needs the list of the group and each of its versions. A kind that moves
// from one version to another meanwhile may be absent from each of them when that is read.
func (p proof) missingGroup() string {
	// A known version that is gone leaves the list for the next lookup (rule R3 in DESIGN.md).
	gone := func(r *Request) bool { return r.Group == p.group && r.Version >= 0 && r.Code == 404 }
	if p.any(gone) {
		return p.missingVersions(filter(allVersions, func(version int) bool {
			return p.any(func(r *Request) bool { return r.Group == p.group && r.Version == version })
		}))
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

// checkFound checks that each mapping is one that the mapper was told, by a read that nothing has outdated since.
func (v *view) checkFound(o *Op) (list []Violation) {
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

// whyNot returns "" if there is a read that an answer may come from, else what is wrong with the best one.
func (v *view) whyNot(o *Op, f Found) (Rule, string) {
	told := filter(v.requests, func(r *Request) bool { return r.End.before(o.Return) && v.shows(r, f) })
	if len(told) == 0 {
		return RuleNeverServed, "was told by no answer that had arrived"
	}
	reset := v.resetBefore(o)
	later := filter(told, func(r *Request) bool { return reset.before(r.Start) })
	switch excused := v.troubled(o) || v.stillListed(o); {
	case excused: // the last good state is served, and a reset may be pending; but nothing that was outdated before
	case len(later) == 0:
		return RuleReset, fmt.Sprintf("was told by no answer since Reset (%d)", reset.Seq)
	default:
		told = later
	}
	why := ""
	for _, r := range told {
		by := v.outdatedBy(o, r, f)
		if by == nil {
			return "", ""
		}
		why = fmt.Sprintf("was told last by GET %s (since %d), which GET %s (since %d) had outdated before the lookup", r.Path, r.Start.Seq, by.Path, by.Start.Seq)
	}
	return RuleOutdated, why
}

// served reports whether a world has what was found.
func (f Found) served(w World) bool {
	s := w[f.Group][f.Kind]
	return s.in(f.Version) && (!f.Scoped || s.Namespaced == f.Namespaced)
}

func (v *view) shows(r *Request, f Found) bool {
	return v.says(r, f.Group, f.Version, f.Kind) == present && f.served(r.World)
}

// outdatedBy returns a read that outdates r for o, or nil. Such a read began after r was known, told
// otherwise, and was known itself when o began. A read before a Reset, even one during o, need not count
// any more; a document does not outdate a live read, and of built-in groups it decides (rule R6).
func (v *view) outdatedBy(o *Op, r *Request, f Found) *Request {
	reset := v.lastReset(o.Return)
	seen := v.firstSeen(r, f.Group, reset)
	for _, newer := range v.requests {
		otherwise := v.says(newer, f.Group, f.Version, f.Kind) != unknown && !v.shows(newer, f)
		mayOutdate := newer.live()
		if r.Doc {
			mayOutdate = v.Legacy || !builtIn(f.Group)
		}
		if otherwise && mayOutdate && v.period[newer] > v.period[seen] && reset.before(newer.Start) && v.binding(newer, o, f.Group, f.Version) {
			return newer
		}
	}
	return nil
}

// checkOrder checks that an answer leaves out no version that is known to serve the kind:
// none at all from RESTMappings, and from other lookups none that comes before what was found,
// in the order of the question, or in the server's.
func (v *view) checkOrder(o *Op) (list []Violation) {
	if len(o.Found) == 0 || v.troubled(o) {
		return nil
	}
	best := o.Found[0]
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
	reset := v.resetBefore(o)
	sure, notBefore := false, -1
	for _, r := range v.requests {
		if r.Start.before(reset) || !r.End.before(o.Return) {
			continue
		}
		switch v.says(r, group, version, o.Name) {
		case present:
			news := notBefore < 0 || r.live() && v.period[r] > notBefore
			sure = sure || news && v.binding(r, o, group, version)
		case absent:
			sure, notBefore = false, v.period[r]
		}
	}
	return sure
}
