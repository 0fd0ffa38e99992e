// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
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

	lazyObject = "one"
)

func TestLazywatch(t *testing.T) {
	t.Parallel() // most of the time it waits for stock to scan
	newEnvironment(t, "lazywatch").tell(t,
		story{"L1", "a kind is installed at run time, stock scans every " + lazyRescan.String(), true, (*replay).kindComes},
		story{"L2", "a kind goes and comes back, stock scans every " + lazyRescan.String(), true, (*replay).kindComesBack},
		// A scan does not help here: it sees the new resource, but every client and cache asks a mapper that does not.
		story{"L3", "a kind comes back under another resource name", false, (*replay).otherResource},
		story{"L4", "a kind cannot be listed, one never comes, a target is absent; the rest goes on", true, (*replay).badSources},
	)
}

// Both programs mirror whatever is marked, so each has a group and a namespace of its own.

func (s *side) lazyKind(kind string, versions ...string) Kind {
	return Kind{Group: s.namespace() + ".example.com", Kind: kind, Versions: versions}
}

func (s *side) widget() Kind { return s.lazyKind("Widget", "v1") }

// kindComes runs without an include list: every kind of the server has a source.
func (r *replay) kindComes() {
	other := map[*side]*side{r.sides[0]: r.sides[1], r.sides[1]: r.sides[0]}
	r.startLazywatch(func(s *side) []string {
		return []string{"-exclude", "Event,Event.events.k8s.io,Widget." + other[s].widget().Group}
	})
	r.both("at start, of all kinds", func(s *side) (Step, error) {
		err := s.await("readiness", func() (bool, error) {
			err := s.get("/readyz", nil)
			return err == nil, err
		})
		now, statusErr := s.kinds()
		running := 0
		for _, entry := range now {
			if entry.State == "Running" {
				running++
			}
		}
		const review = "NotMirrorable the server does not know the verbs get, list, watch, patch, delete for this kind"
		if got := now["LocalSubjectAccessReview.authorization.k8s.io"].String(); got != review {
			err = errors.Join(err, fmt.Errorf("a kind that can only be created is %s", got))
		}
		requests := s.discoveries(r.begun)
		if s.result.Fork && requests > lazyRequests {
			err = errors.Join(err, fmt.Errorf("%d requests of discovery, want %d at most", requests, lazyRequests))
		}
		return Step{Outcome: Count(running, "controller", "controllers"), OK: running == 0, Requests: requests}, errors.Join(err, statusErr)
	})
	r.mirrors("CRD Widget comes", (*side).widget, "own")
	r.within(lazySoon)
}

func (r *replay) kindComesBack() {
	r.mirrorsAndGoes()
	r.mirrors("CRD Widget comes back", (*side).widget, "own")
	r.within(lazySoon)
}

func (r *replay) otherResource() {
	r.mirrorsAndGoes()
	r.mirrors("it comes back as gizmos", func(s *side) Kind {
		gizmos := s.widget()
		gizmos.Plural = "gizmos"
		return gizmos
	}, "own")
}

// badSources has a kind that cannot be listed, and is left alone in the end, and one that never
// comes. Of the third, a pattern selects one version. It has many objects, and one of them a
// target that does not exist, and more targets than it may have.
func (r *replay) badSources() {
	bad := func(s *side) Kind { return s.lazyKind("Bad", "v1") }
	kind := func(s *side) Kind { return s.lazyKind("Widget", "v1", "v2") }
	for _, s := range r.sides {
		must(r.t, r.server.Install(r.ctx, bad(s)), s.mark(bad(s), "own"), r.server.makeUnlistable(s, bad(s)))
	}
	r.startLazywatch(func(s *side) []string {
		group := bad(s).Group
		return []string{
			"-include", "Nope.example.com,Bad." + group + ",Wid*.v1." + group, "-exclude", "Wid*.v2.*",
			"-max-targets", "2", "-max-failures", "1", "-many-objects", "2",
		}
	})
	r.both("Bad cannot be listed", func(s *side) (Step, error) {
		now, err := s.awaitState(bad(s), "Tripped")
		_, nopeErr := s.awaitState(Kind{Group: "example.com", Kind: "Nope"}, "NotServed")
		code, ready, readyErr := httpDo(s.ctx, http.MethodGet, s.address, "/readyz")
		for _, text := range []string{now.Message, ready} {
			if !strings.Contains(text, "failed 1 times in a row") || !strings.Contains(text, "conversion webhook") {
				err = errors.Join(err, fmt.Errorf("the reason should be there: %q", text))
			}
		}
		return Step{Outcome: "left alone", OK: code == http.StatusOK}, errors.Join(err, nopeErr, readyErr)
	})
	for _, s := range r.sides {
		must(r.t, r.server.Install(r.ctx, kind(s)), r.server.Make(r.ctx, kind(s), "two", nil), r.server.Make(r.ctx, kind(s), "three", nil))
	}
	r.mirrors("CRD Widget comes", kind, "absent", "own", "left-out")
	r.holds("is it said what failed?", "yes, in events", func(s *side) (bool, error) {
		var events corev1.EventList
		err := s.server.Client.List(s.ctx, &events)
		said := ""
		for _, event := range events.Items {
			if strings.HasPrefix(event.InvolvedObject.APIVersion, kind(s).Group) {
				said += event.Reason + ": " + event.Message + "\n"
			}
		}
		return strings.Contains(said, "MirrorFailed: into namespace absent") &&
			strings.Contains(said, "TooManyTargets: 3 namespaces are more than -max-targets=2, left out: left-out"), err
	})
	r.holds("is it said that there are many?", "yes", func(s *side) (bool, error) {
		now, err := s.awaitState(kind(s), "Running")
		want := "in version v1; there are 3 objects of this kind, more than -many-objects=2"
		if err == nil && !strings.HasPrefix(now.Message, want) {
			err = fmt.Errorf("got %q, want %q", now.Message, want)
		}
		return err == nil, err
	})
}

// makeUnlistable adds a version to a kind, which becomes the preferred one by its name, and
// into which nothing can be converted: to list it is an error as long as there is an object
// that was stored before.
func (s *Server) makeUnlistable(at *side, kind Kind) error {
	return s.change(at.ctx, kind, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		added := *spec.Versions[0].DeepCopy()
		added.Name, added.Storage = "v2", false
		spec.Versions = append(spec.Versions, added)
		spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/nobody-listens")},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	})
}

func (r *replay) startLazywatch(args func(*side) []string) {
	r.t.Helper()
	r.startOnGateways(func(s *side) []string {
		rescan := lazyRescan
		if s.result.Fork {
			rescan = lazyForkRescan
		}
		return append(args(s), "-bind-address", s.address, "-rescan", rescan.String(), "-probe-interval", "500ms")
	})
}

// mirrorsAndGoes starts the programs for Widget, installs it, waits until they mirror, and
// deletes it: its sources stop, and the programs stay ready.
func (r *replay) mirrorsAndGoes() {
	r.t.Helper()
	r.startLazywatch(func(s *side) []string { return []string{"-include", "Widget." + s.widget().Group} })
	r.mirrors("CRD Widget comes", (*side).widget, "own")
	r.both("CRD Widget is deleted", func(s *side) (Step, error) {
		if !s.result.Healed {
			return Step{}, errors.New("it did not work to begin with")
		}
		if err := s.server.Uninstall(s.ctx, s.widget()); err != nil {
			return Step{}, err
		}
		start := time.Now()
		err := s.get("/readyz", nil) // no cache that waits for the kind may hold it up
		_, stateErr := s.awaitState(s.widget(), "NotServed")
		return Step{Outcome: fmt.Sprintf("ready, stopped in %.1f s", time.Since(start).Seconds()), OK: true}, errors.Join(err, stateErr)
	})
}

// mirrors installs a kind and waits until the program has begun with it: the time until then
// is the result. Then it creates a marked object and waits until that is mirrored. The server
// holds a kind's first object back until the kind is two seconds old, so the time until the
// object is mirrored would say little.
func (r *replay) mirrors(what string, kind func(*side) Kind, targets ...string) {
	r.t.Helper()
	r.both(what, func(s *side) (Step, error) {
		kind, begun := kind(s), time.Now()
		if err := r.server.Install(r.ctx, kind); err != nil {
			return Step{}, err
		}
		start := time.Now()
		entry := lazyEntry{}
		err := s.await(kind.Kind+" to be picked up", func() (bool, error) {
			now, err := s.kinds()
			entry = now[kind.Kind+"."+kind.Group]
			return entry.State != "" && entry.State != "NotServed", err
		})
		s.result.Millis = millisSince(start)
		s.result.Healed, s.result.Tries = false, 1
		if err := errors.Join(err, s.mark(kind, targets...)); err != nil {
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

// mark creates an object that is to be mirrored. Of its targets, "own" is the side's.
func (s *side) mark(kind Kind, targets ...string) error {
	to := strings.ReplaceAll(strings.Join(targets, ","), "own", s.namespace())
	return s.server.Make(s.ctx, kind, lazyObject, func(object *unstructured.Unstructured) {
		object.SetLabels(map[string]string{"lazywatch.example.com/mirror": "source"})
		object.SetAnnotations(map[string]string{"lazywatch.example.com/to": to})
	})
}

func (s *side) discoveries(since time.Time) int { return len(s.gateway.Calls(since, Call.isDiscovery)) }

// lazyEntry is what /kinds says of a kind.
type lazyEntry struct {
	State   string `json:"state"`
	Message string `json:"message"`
}

func (e lazyEntry) String() string { return strings.TrimSpace(e.State + " " + e.Message) }

func (s *side) kinds() (map[string]lazyEntry, error) {
	var now struct {
		Kinds map[string]lazyEntry `json:"kinds"`
	}
	err := s.get("/kinds", &now)
	return now.Kinds, err
}

func (s *side) awaitState(kind Kind, state string) (entry lazyEntry, err error) {
	err = s.await(kind.Kind+" to be "+state, func() (bool, error) {
		now, err := s.kinds()
		entry = now[kind.Kind+"."+kind.Group]
		return entry.State == state, err
	})
	return entry, err
}
