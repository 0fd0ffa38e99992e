// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

	lazyObject = "one"
)

func TestLazywatch(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to scan
	newEnvironment(t, "lazywatch").tell(t,
		story{"L1", "a kind goes and comes back, stock scans every " + lazyRescan.String(), true, (*replay).kindComesBack},
		// A scan does not help here: it sees the new resource, but every client and cache asks a mapper that does not.
		story{"L2", "a kind comes back under another resource name", false, (*replay).otherResource},
	)
}

// Both programs mirror whatever is marked, so each has a group and a namespace of its own.

func (s *side) widget() Kind {
	return Kind{Group: s.namespace() + ".example.com", Kind: "Widget", Versions: []string{"v1"}}
}

func (r *replay) kindComesBack() {
	r.mirrorsAndGoes()
	r.mirrors("CRD Widget comes back", (*side).widget)
	r.within(lazySoon)
}

func (r *replay) otherResource() {
	r.mirrorsAndGoes()
	r.mirrors("it comes back as gizmos", func(s *side) Kind {
		gizmos := s.widget()
		gizmos.Plural = "gizmos"
		return gizmos
	})
}

// mirrorsAndGoes starts the programs for Widget, installs it, waits until they mirror, and
// deletes it: its sources stop, and the programs stay ready.
func (r *replay) mirrorsAndGoes() {
	r.t.Helper()
	r.startOnGateways(func(s *side) []string {
		rescan := lazyRescan
		if s.result.Ours {
			rescan = lazyForkRescan
		}
		return []string{"-include", "Widget." + s.widget().Group, "-bind-address", s.address, "-rescan", rescan.String(), "-probe-interval", "500ms"}
	})
	r.mirrors("CRD Widget comes", (*side).widget)
	r.both("CRD Widget is deleted", func(s *side) (Step, error) {
		if !s.result.Healed {
			return Step{}, errors.New("it did not work to begin with")
		}
		if err := s.server.Uninstall(s.ctx, s.widget()); err != nil {
			return Step{}, err
		}
		start := time.Now()
		err := s.get("/readyz", nil) // no cache that waits for the kind may hold it up
		stateErr := s.await("Widget to be gone", func() (bool, error) {
			state, err := s.state(s.widget())
			return state == "NotServed", err
		})
		return Step{Outcome: fmt.Sprintf("ready, stopped in %.1f s", time.Since(start).Seconds()), OK: true}, errors.Join(err, stateErr)
	})
}

// mirrors installs a kind and waits until the program has begun with it: the time until then
// is the result. Then it creates a marked object and waits until that is mirrored. The server
// holds a kind's first object back until the kind is two seconds old, so the time until the
// object is mirrored would say little.
func (r *replay) mirrors(what string, kind func(*side) Kind) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		kind, begun := kind(s), time.Now()
		if err := r.server.Install(r.ctx, kind); err != nil {
			return Step{}, err
		}
		start := time.Now()
		err := s.await(kind.Kind+" to be picked up", func() (bool, error) {
			state, err := s.state(kind)
			return state != "" && state != "NotServed", err
		})
		s.result.Millis = millisSince(start)
		s.result.Healed, s.result.Tries = false, 1
		if err := errors.Join(err, s.mark(kind)); err != nil {
			return Step{}, err
		}
		for start := time.Now(); !s.result.Healed && time.Since(start) < lazyGiveUp && err == nil; time.Sleep(10 * time.Millisecond) {
			var copied *unstructured.Unstructured
			copied, err = r.server.Object(r.ctx, kind, s.namespace(), lazyObject)
			s.result.Healed = copied != nil && fmt.Sprint(copied.Object["spec"]) == "map[size:1]"
		}
		if !s.result.Healed {
			s.result.Millis = millisSince(start)
		}
		s.result.Requests = s.discoveries(begun)
		return Step{Outcome: fmt.Sprintf("mirrored: %t", s.result.Healed), OK: s.result.Healed, Requests: s.result.Requests}, err
	})
}

// mark creates an object that is to be mirrored into the side's namespace.
func (s *side) mark(kind Kind) error {
	return s.server.Make(s.ctx, kind, lazyObject, func(object *unstructured.Unstructured) {
		object.SetLabels(map[string]string{"lazywatch.example.com/mirror": "source"})
		object.SetAnnotations(map[string]string{"lazywatch.example.com/to": s.namespace()})
	})
}

func (s *side) discoveries(since time.Time) int { return len(s.gateway.Calls(since, Call.isDiscovery)) }

// state is what /kinds says of a kind.
func (s *side) state(kind Kind) (string, error) {
	var now struct {
		Kinds map[string]struct {
			State string `json:"state"`
		} `json:"kinds"`
	}
	err := s.get("/kinds", &now)
	return now.Kinds[kind.Kind+"."+kind.Group].State, err
}
