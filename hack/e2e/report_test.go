// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// A replay gives a lookup up if it is still wrong after this many tries, this far
// apart. The fork gets one try.
const (
	giveUpAfter = 5
	tryEvery    = 250 * time.Millisecond
)

// answer is a line that `heal report` prints.
type answer struct {
	OK                bool   `json:"ok"`
	GroupVersion      string `json:"groupVersion"`
	Scope             string `json:"scope"`
	NoMatch           bool   `json:"noMatch"`
	Error             string `json:"error"`
	DiscoveryRequests int    `json:"discoveryRequests"`
}

func (a answer) String() string {
	_, version, _ := strings.Cut(a.GroupVersion, "/")
	switch {
	case a.OK && version == "":
		return "done"
	case a.OK && a.Scope == "root":
		return version + ", cluster-wide"
	case a.OK:
		return version + ", " + a.Scope + "d"
	case a.NoMatch:
		return "no match"
	default:
		return a.Error
	}
}

// wanted reports whether an answer is the right one.
type wanted func(answer) bool

func noMatch(a answer) bool { return a.NoMatch }

func done(a answer) bool { return a.OK }

func mapped(groupVersion, scope string) wanted {
	return func(a answer) bool { return a.OK && a.GroupVersion == groupVersion && a.Scope == scope }
}

// startReports starts `heal report` on both sides.
func (r *replay) startReports() {
	r.t.Helper()
	r.start(func(*side) []string { return []string{"report"} })
}

func (s *side) ask(command string) (answer, error) {
	line, err := s.process.ask(command)
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(line, &a)
}

// ask asks both sides, whose answers must be right: the replay builds on them.
func (r *replay) ask(what, command string, right wanted) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		a, err := s.ask(command)
		if err == nil && !right(a) {
			err = fmt.Errorf("%q: unexpected answer %+v", command, a)
		}
		return Step{Outcome: a.String(), OK: err == nil, Requests: a.DiscoveryRequests}, err
	})
}

// heal asks both sides, right after the server changed, until the answer to the
// last command is right, or gives up. All commands are sent at every try.
func (r *replay) heal(what string, right wanted, commands ...string) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		start := time.Now()
		last, err := s.try(right, commands)
		s.result.Millis = millisSince(start)
		return Step{Outcome: times(last.String(), s.result.Tries), OK: s.result.Healed, Requests: s.result.Requests}, err
	})
}

func (s *side) try(right wanted, commands []string) (last answer, err error) {
	for s.result.Tries < giveUpAfter {
		if s.result.Tries > 0 {
			time.Sleep(tryEvery)
		}
		s.result.Tries++
		for _, command := range commands {
			if last, err = s.ask(command); err != nil {
				return last, err
			}
			s.result.Requests += last.DiscoveryRequests
		}
		if right(last) {
			s.result.Healed = true
			return last, nil
		}
		if s.result.Fork {
			return last, nil // the first lookup after the change is the one that must be right
		}
	}
	return last, nil
}

// times returns the text of an outcome that came n times.
func times(outcome string, n int) string {
	if n == 1 {
		return outcome
	}
	return fmt.Sprintf("%s, %d×", outcome, n)
}
