// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"net/http"
	"slices"
	"time"
)

// A Rule is a promise that can be broken.
type Rule string

// The rules. The package comment explains them.
const (
	RuleTruth       Rule = "not linearizable"
	RuleVersion     Rule = "NoMatch without a live read of the version"
	RuleGroup       Rule = "NoMatch without a live read of the group"
	RuleNeverServed Rule = "never told"
	RuleReset       Rule = "older than a reset"
	RuleGroupReset  Rule = "ResetGroup without a live read"
	RuleOutdated    Rule = "outdated"
	RuleOrder       Rule = "left out a version"
	RulePlace       Rule = "chosen by a place that nobody told"
	RuleSame        Rule = "another answer to the same question"
	RuleWait        Rule = "waits for what it does not need"
	RuleWrong       Rule = "answers another question"
	RuleError       Rule = "error without a fault"
	RulePanic       Rule = "panic"
	RuleHit         Rule = "hit that waits"
)

// A Violation is an answer that breaks a rule.
type Violation struct {
	Rule Rule
	Op   *Op
	Why  string
}

func (v Violation) String() string {
	return fmt.Sprintf("%s: client %d (since %d) %s = %s: %s", v.Rule, v.Op.Client, v.Op.Call.Seq, v.Op, v.Op.answer(), v.Why)
}

// Check lists what is wrong with a history.
func Check(h *History) []Violation {
	v := newView(h)
	var list []Violation
	for _, o := range h.Ops {
		switch {
		case o.Panicked:
			list = append(list, Violation{RulePanic, o, o.Err.Error()})
		case o.lookup():
			list = slices.Concat(list, v.checkAnswer(o), v.checkSame(o), v.checkWait(o))
		}
	}
	return append(list, checkTruth(v)...)
}

func (v *view) checkAnswer(o *Op) []Violation {
	switch {
	case o.NoMatch:
		return v.checkNoMatch(o)
	case o.Err == nil:
		return slices.Concat(v.checkFound(o), v.checkOrder(o), v.checkPlaces(o), v.checkHit(o))
	case !v.troubled(o) && !v.stillListed(o):
		return []Violation{{RuleError, o, "nothing that it asks for was failing"}}
	}
	return nil
}

// stillListed reports whether a lookup met a 404 shortly after a failure: if the document that
// decides still lists the version, being behind, what is known is served, or it is an error (R6).
func (v *view) stillListed(o *Op) bool {
	return (v.doubted(o.Call) || v.doubted(o.Return)) && slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.Code == http.StatusNotFound && slices.Contains(o.groups(), r.Group) && overlaps(o, r.Start, r.End)
	})
}

// checkHit checks that a lookup of one version which must be known takes no time.
func (v *view) checkHit(o *Op) []Violation {
	if o.Kind != OpMapping || len(o.Versions) != 1 || o.Return.At == o.Call.At {
		return nil
	}
	group := o.groups()[0]
	if later(v.resets(o, group)) != (Stamp{}) || !v.certain(o, group, o.versions()[0]) {
		return nil // when a reset is settled is the mapper's business
	}
	return []Violation{{RuleHit, o, fmt.Sprintf("it took %v", o.Return.At-o.Call.At)}}
}

// checkSame checks that the same question has the same answer again if no request began or
// ended since.
func (v *view) checkSame(o *Op) []Violation {
	if o.Again == nil || o.answer() == o.Again.answer() {
		return nil
	}
	within := func(s Stamp) bool { return o.Again.Call.before(s) && s.before(o.Return) }
	reset := func(other *Op) bool { return !other.lookup() && within(other.Call) }
	if slices.ContainsFunc(v.Requests, func(r *Request) bool { return within(r.Start) || within(r.End) }) || slices.ContainsFunc(v.Ops, reset) {
		return nil
	}
	return []Violation{{RuleSame, o, "a moment before it was " + o.Again.answer()}}
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
			decided = doubtAfter
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

// settled reports whether a document was read after the last reset before o ended, and
// before o began.
func (v *view) settled(o *Op) bool {
	reset := v.lastReset(o.Return)
	return slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.Doc && !r.failed() && reset.before(v.began[r]) && r.End.At < o.Call.At
	})
}
