// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"
)

// lazyRescan is how often stock's lazywatch asks what is served. The fork's
// lazywatch is told of changes. It asks so seldom that asking cannot be the reason
// why it heals.
const (
	lazyRescan     = 5 * time.Second
	lazyForkRescan = 10 * time.Minute
	lazyGiveUp     = 3 * lazyRescan

	// lazySoon is "within about a second" on a busy machine.
	lazySoon = 3 * time.Second

	// lazyRequests are some readings of the document: verbs cost no requests.
	lazyRequests = 12
)

func TestLazywatch(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to scan
	l := newLazywatch(t)
	t.Run("L1", l.kindComes)
	t.Run("L2", l.kindComesBack)
	t.Run("L3", l.otherResource)
	t.Run("L4", l.badSource)
	t.Run("L6", l.selected)
	t.Run("bad input", l.badInput)
}

// kindComes runs without an include list: every kind of the server has a source.
func (l *lazywatch) kindComes(t *testing.T) {
	r := l.replay(t, "L1", "a kind is installed at run time, stock scans every "+lazyRescan.String())
	l.startAll(r)
	r.both("at start, of all kinds", func(s *side) (Step, error) {
		now, err := l.awaitReady(s)
		watched, review := now.count("Running"), now.Kinds["LocalSubjectAccessReview.authorization.k8s.io"]
		if err == nil && review.String() != "NotMirrorable the server does not know the verbs get, list, watch, patch, delete for this kind" {
			err = fmt.Errorf("a kind that can only be created is %s", review)
		}
		if s.result.Fork && now.DiscoveryRequests > lazyRequests {
			err = errors.Join(err, fmt.Errorf("%d requests of discovery, want %d at most", now.DiscoveryRequests, lazyRequests))
		}
		return Step{Outcome: Count(watched, "controller", "controllers"), OK: watched == 0, Requests: now.DiscoveryRequests}, err
	})
	r.both("CRD Widget comes", func(s *side) (Step, error) { return l.heal(s, lazyKind(s, "l1"), "widgets", l.install) })
	r.judge(true)
	l.judgeSoon(t, r)
}

func (l *lazywatch) kindComesBack(t *testing.T) {
	r := l.replay(t, "L2", "a kind goes and comes back, stock scans every "+lazyRescan.String())
	l.given(r, "l2")
	r.both("CRD Widget is deleted", func(s *side) (Step, error) {
		return l.goes(s, lazyKind(s, "l2"))
	})
	r.both("CRD Widget comes back", func(s *side) (Step, error) { return l.heal(s, lazyKind(s, "l2"), "widgets", l.install) })
	r.judge(true)
	l.judgeSoon(t, r)
}

// otherResource shows a case in which a scan does not help: the scan sees the new
// resource, but every client and cache asks a mapper that does not.
func (l *lazywatch) otherResource(t *testing.T) {
	r := l.replay(t, "L3", "a kind comes back under another resource name")
	l.given(r, "l3")
	r.both("CRD Widget is deleted", func(s *side) (Step, error) {
		return l.goes(s, lazyKind(s, "l3"))
	})
	r.both("it comes back as gizmos", func(s *side) (Step, error) {
		return l.heal(s, lazyKind(s, "l3"), "gizmos", func(kind Kind) error {
			return l.server.Install(l.ctx, called(kind, "gizmos"))
		})
	})
	r.judge(false)
}

// badSource has a kind that cannot be listed, and is left alone in the end, and an object with a target that
// does not exist, and with more targets than it may have.
func (l *lazywatch) badSource(t *testing.T) {
	r := l.replay(t, "L4", "one kind cannot be listed, one target does not exist; the rest goes on")
	bad := func(s *side) Kind {
		return Kind{Group: lazyKind(s, "l4").Group, Kind: "Bad", Versions: []string{"v1"}}
	}
	for _, s := range r.sides {
		must(t, l.install(bad(s)), l.mark(s, bad(s), "bads", lazyTarget(s)), l.server.Break(l.ctx, bad(s), "v2"))
	}
	l.startOn(r, func(s *side) []string {
		return []string{"-include", "Bad." + bad(s).Group + ",Widget." + bad(s).Group, "-max-targets", "2", "-max-failures", "1"}
	})
	r.both("Bad cannot be listed", func(s *side) (Step, error) {
		now, err := l.awaitState(s, bad(s), "Tripped")
		if err != nil {
			return Step{}, err
		}
		ready, err := l.get(s, "/readyz")
		for _, text := range []string{now.Message, string(ready)} {
			if !strings.Contains(text, "failed 1 times in a row") || !strings.Contains(text, "conversion webhook") {
				err = errors.Join(err, fmt.Errorf("the reason should be there: %q", text))
			}
		}
		return Step{Outcome: "ready, left alone", OK: true}, err
	})
	r.both("CRD Widget comes", func(s *side) (Step, error) {
		return l.healTo(s, lazyKind(s, "l4"), "widgets", l.install, "absent", lazyTarget(s), "left-out")
	})
	r.both("is it said what failed?", func(s *side) (Step, error) {
		err := l.awaitEvents(s, "MirrorFailed: into namespace absent", "TooManyTargets: 3 namespaces are more than -max-targets=2, left out: left-out")
		return Step{Outcome: "yes, in events", OK: err == nil}, err
	})
	r.judge(true)
}

// selected has a pattern for one version of a kind, which has many objects.
func (l *lazywatch) selected(t *testing.T) {
	r := l.replay(t, "L6", "a pattern selects one version of a kind, and there are many objects of it")
	kind := func(s *side) Kind {
		kind := lazyKind(s, "l6")
		kind.Versions = []string{"v1", "v2"}
		return kind
	}
	l.startOn(r, func(s *side) []string {
		return []string{"-include", "Wid*.v1." + kind(s).Group, "-exclude", "*.v2.*", "-many-objects", "2"}
	})
	r.both("CRD Widget comes with two objects", func(s *side) (Step, error) {
		err := l.install(kind(s))
		for _, name := range []string{"two", "three"} {
			err = errors.Join(err, l.server.Make(l.ctx, kind(s), name, ""))
		}
		return Step{Outcome: "created", OK: err == nil}, err
	})
	r.both("one more is marked", func(s *side) (Step, error) {
		step, err := l.heal(s, kind(s), "widgets", func(Kind) error { return nil })
		if err != nil {
			return step, err
		}
		now, err := l.awaitState(s, kind(s), "Running")
		if want := "in version v1; there are 3 objects of this kind, more than -many-objects=2"; err == nil && !strings.HasPrefix(now.Message, want) {
			err = fmt.Errorf("got %q, want %q", now.Message, want)
		}
		return step, err
	})
	r.judge(true)
}

// badInput ends the program with a clear message. A kind that is not served is
// no bad input: it may come.
func (l *lazywatch) badInput(t *testing.T) {
	for args, want := range map[string]string{
		"-rescan 0":                   "-rescan must be positive, not 0s",
		"-probe-interval -1s":         "-probe-interval must be positive, not -1s",
		"-max-targets 0":              "-max-targets must be positive, not 0",
		"-max-failures 0":             "-max-failures must be positive, not 0",
		"-include configmaps":         `"configmaps" is no kind, want KIND.GROUP or KIND.VERSION.GROUP such as ConfigMap`,
		"-include ConfigMap,,Service": `"" is no kind`,
		"-kubeconfig absent":          "absent",
	} {
		t.Run(args, func(t *testing.T) { l.refuses(t, strings.Fields(args), "", want) })
	}
	t.Run("unknown kind", l.unknownKind)
}

func (l *lazywatch) unknownKind(t *testing.T) {
	r := l.replay(t, "L5", "the include list has a kind that does not exist")
	l.startOn(r, func(s *side) []string {
		return []string{"-include", "Nope.example.com,Widget." + lazyKind(s, "l5").Group}
	})
	r.both("Nope.example.com", func(s *side) (Step, error) {
		_, err := l.awaitState(s, Kind{Group: "example.com", Kind: "Nope"}, "NotServed")
		return Step{Outcome: "NotServed", OK: true}, err
	})
	r.both("CRD Widget comes", func(s *side) (Step, error) { return l.heal(s, lazyKind(s, "l5"), "widgets", l.install) })
	r.judge(true)
}
