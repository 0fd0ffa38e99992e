// SPDX-License-Identifier: Apache-2.0

package lincheck

import "fmt"

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
		if o.lookup() || o.Panicked {
			list = append(list, v.check(o)...)
		}
	}
	return append(list, checkTruth(v)...)
}

func (v *view) check(o *Op) []Violation {
	switch {
	case o.Panicked:
		return []Violation{{RulePanic, o, o.Err.Error()}}
	case o.NoMatch:
		return v.checkNoMatch(o)
	case o.Err == nil:
		return append(v.checkFound(o), v.checkHit(o)...)
	case !v.troubled(o):
		return []Violation{{RuleError, o, "nothing that it asks for was failing"}}
	}
	return nil
}

// checkHit checks that a lookup of one version which must be known takes no time.
func (v *view) checkHit(o *Op) []Violation {
	if o.Kind != OpMapping || len(o.Versions) != 1 || o.Return.At == o.Call.At {
		return nil
	}
	if all, one := v.resets(o, o.groups()[0]); later(all, one) != (Stamp{}) {
		return nil // when a reset is settled is the mapper's business
	}
	if !v.certain(o, o.groups()[0], o.versions()[0]) {
		return nil
	}
	return []Violation{{RuleHit, o, fmt.Sprintf("it took %v", o.Return.At-o.Call.At)}}
}
