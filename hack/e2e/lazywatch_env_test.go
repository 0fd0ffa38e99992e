// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	lazyObject = "one"
	lazyReady  = time.Second // to answer from memory, on a busy machine
)

// lazywatch is an environment with a client that needs no mapper: the test must
// not go stale as the programs do.
type lazywatch struct {
	*environment
	objects   dynamic.Interface
	addresses map[*side]string // of the programs' HTTP servers
}

func newLazywatch(t *testing.T) *lazywatch {
	t.Helper()
	l := &lazywatch{environment: newEnvironment(t, "lazywatch"), addresses: map[*side]string{}}
	var err error
	l.objects, err = dynamic.NewForConfig(l.config)
	must(t, err)
	for _, s := range []*side{{result: &Result{}}, {result: &Result{Fork: true}}} {
		for _, name := range []string{lazySource(s), lazyTarget(s)} {
			must(t, l.server.Client.Create(l.ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
		}
	}
	return l
}

// Both programs mirror whatever is marked, so each has kinds and namespaces of its own.
func (s *side) own(name string) string {
	if s.result.Fork {
		return "fork-" + name
	}
	return "stock-" + name
}

func lazySource(s *side) string { return s.own("source") }
func lazyTarget(s *side) string { return s.own("target") }

func lazyKind(s *side, replay string) Kind {
	return Kind{Group: s.own(replay) + ".example.com", Kind: "Widget", Versions: []string{"v1"}}
}

func (l *lazywatch) install(kind Kind) error {
	return errors.Join(l.server.Install(l.ctx, kind), l.server.AwaitServed(l.ctx, kind))
}

// startAll starts the programs for all kinds but the other side's.
func (l *lazywatch) startAll(r *replay) {
	r.t.Helper()
	l.startOn(r, func(s *side) []string {
		other := r.sides[0]
		if s == other {
			other = r.sides[1]
		}
		return []string{"-exclude", "Event,Event.events.k8s.io,Widget." + lazyKind(other, "l1").Group}
	})
}

func (l *lazywatch) startOn(r *replay, args func(*side) []string) {
	r.t.Helper()
	for _, s := range r.sides {
		address, err := freeAddress(l.ctx)
		must(r.t, err)
		l.addresses[s] = address
	}
	r.start(func(s *side) []string {
		rescan := lazyRescan
		if s.result.Fork {
			rescan = lazyForkRescan
		}
		return append(args(s), "-bind-address", l.addresses[s], "-rescan", rescan.String(), "-probe-interval", "500ms")
	})
}

// freeAddress returns a local address that nobody listens at.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return listener.Addr().String(), listener.Close()
}

// given installs Widget, starts the programs for it, and waits until they mirror.
func (l *lazywatch) given(r *replay, replay string) {
	r.t.Helper()
	l.startOn(r, func(s *side) []string { return []string{"-include", "Widget." + lazyKind(s, replay).Group} })
	r.both("CRD Widget comes", func(s *side) (Step, error) {
		step, err := l.heal(s, lazyKind(s, replay), "widgets", l.install)
		if err == nil && !s.result.Healed {
			err = errors.New("this should work to begin with")
		}
		return step, err
	})
}

func (l *lazywatch) heal(s *side, kind Kind, plural string, install func(Kind) error) (Step, error) {
	return l.healTo(s, kind, plural, install, lazyTarget(s))
}

// healTo installs a kind and waits until the program has seen it: the result is
// about that. Then it creates a marked object and waits until that is mirrored.
func (l *lazywatch) healTo(
	s *side, kind Kind, plural string, install func(Kind) error, targets ...string,
) (Step, error) {
	before, err := l.status(s)
	if err := errors.Join(err, install(kind), l.server.AwaitServed(l.ctx, kind)); err != nil {
		return Step{}, err
	}
	start := time.Now()
	if err := l.awaitPickup(s, kind); err != nil {
		return Step{}, err
	}
	seen := time.Since(start)
	// The server holds the first object back until the kind is two seconds old. So
	// the time until the object is mirrored would say little.
	if err := l.mark(s, kind, plural, targets...); err != nil {
		return Step{}, err
	}
	s.result.Healed, err = l.mirrored(s, kind, plural)
	s.result.Tries, s.result.Millis = 1, millisSince(start)
	now, statusErr := l.status(s)
	s.result.Requests = now.DiscoveryRequests - before.DiscoveryRequests
	outcome := "not mirrored: " + now.of(kind).String()
	if s.result.Healed {
		outcome = "seen, mirrored"
		s.result.Millis = float64(seen.Microseconds()) / 1000
	}
	return Step{Outcome: outcome, OK: s.result.Healed, Requests: s.result.Requests}, errors.Join(err, statusErr)
}

// mark creates an object that is to be mirrored. It tries again after a 404, which
// a server may still send just after it has begun to serve the kind.
func (l *lazywatch) mark(s *side, kind Kind, plural string, targets ...string) error {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": "large"}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: kind.Versions[0], Kind: kind.Kind})
	object.SetName(lazyObject)
	object.SetLabels(map[string]string{"lazywatch.example.com/mirror": "source"})
	object.SetAnnotations(map[string]string{"lazywatch.example.com/to": strings.Join(targets, ",")})
	resource := l.resource(kind, plural).Namespace(lazySource(s))
	return l.server.Await(l.ctx, "the creation of an object of "+plural, func() (bool, error) {
		_, err := resource.Create(l.ctx, object, metav1.CreateOptions{})
		return err == nil, err
	})
}

func (l *lazywatch) resource(kind Kind, plural string) dynamic.NamespaceableResourceInterface {
	return l.objects.Resource(schema.GroupVersionResource{Group: kind.Group, Version: kind.Versions[0], Resource: plural})
}

// mirrored reports whether the object is mirrored before lazyGiveUp.
func (l *lazywatch) mirrored(s *side, kind Kind, plural string) (bool, error) {
	var object *unstructured.Unstructured
	for start := time.Now(); time.Since(start) < lazyGiveUp; time.Sleep(10 * time.Millisecond) {
		var err error
		object, err = l.resource(kind, plural).Namespace(lazyTarget(s)).Get(l.ctx, lazyObject, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			size, _, _ := unstructured.NestedString(object.Object, "spec", "size")
			return err == nil && size == "large", err
		}
	}
	return false, nil
}

// goes deletes a kind, waits until its source has stopped, and looks at readiness.
func (l *lazywatch) goes(s *side, kind Kind) (Step, error) {
	if err := errors.Join(l.server.Uninstall(l.ctx, kind), l.server.AwaitGone(l.ctx, kind)); err != nil {
		return Step{}, err
	}
	start := time.Now()
	if _, err := l.get(s, "/readyz"); err != nil {
		return Step{}, fmt.Errorf("readiness as soon as the kind is gone: %w", err)
	}
	if took := time.Since(start); took > lazyReady {
		return Step{}, fmt.Errorf("readiness took %s to answer, want %s at most", took, lazyReady)
	}
	_, err := l.awaitState(s, kind, "NotServed")
	return Step{Outcome: fmt.Sprintf("ready, stopped in %.1f s", time.Since(start).Seconds()), OK: true}, err
}

func (l *lazywatch) status(s *side) (now lazyStatus, err error) {
	err = l.server.Await(l.ctx, "the status of "+s.result.Build, func() (bool, error) {
		body, err := l.get(s, "/kinds")
		if err == nil {
			err = json.Unmarshal(body, &now)
		}
		return err == nil, err
	})
	return now, err
}

func (l *lazywatch) awaitReady(s *side) (now lazyStatus, err error) {
	err = l.server.Await(l.ctx, "readiness of "+s.result.Build, func() (bool, error) {
		_, err := l.get(s, "/readyz")
		return err == nil, err
	})
	if err != nil {
		return now, err
	}
	return l.status(s)
}

// awaitPickup waits until the program has begun with a kind, whatever comes of it.
func (l *lazywatch) awaitPickup(s *side, kind Kind) error {
	return l.server.Await(l.ctx, kind.Kind+" to be picked up", func() (bool, error) {
		now, err := l.status(s)
		state := now.of(kind).State
		return state != "" && state != "NotServed", err
	})
}

func (l *lazywatch) awaitState(s *side, kind Kind, state string) (entry lazyEntry, err error) {
	err = l.server.Await(l.ctx, kind.Kind+" to be "+state, func() (bool, error) {
		now, err := l.status(s)
		entry = now.of(kind)
		return entry.State == state, err
	})
	return entry, err
}

// get asks the program's own server, which must answer at once.
func (l *lazywatch) get(s *side, path string) ([]byte, error) {
	return httpGet(l.ctx, l.addresses[s], path)
}

// awaitEvents waits for events about the side's object that begin with these texts.
func (l *lazywatch) awaitEvents(s *side, beginnings ...string) error {
	for _, beginning := range beginnings {
		err := l.server.Await(l.ctx, "the event "+beginning, func() (bool, error) {
			var events corev1.EventList
			err := l.server.Client.List(l.ctx, &events, client.InNamespace(lazySource(s)))
			for _, event := range events.Items {
				if strings.HasPrefix(event.Reason+": "+event.Message, beginning) {
					return true, err
				}
			}
			return false, err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// judgeSoon holds the fork to its promise.
func (l *lazywatch) judgeSoon(t *testing.T, r *replay) {
	t.Helper()
	if fork := r.sides[1].result; fork.Millis > float64(lazySoon.Milliseconds()) {
		fork.Expected = false
		t.Errorf("%s: %s, want %s at most", fork.Build, fork.Verdict(), lazySoon)
	}
}
