// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestHeal(t *testing.T) {
	newEnvironment(t, "heal").tell(t,
		story{"R1", "a version appears after its group was read", false, (*replay).newVersion},
		story{"R2", "a CRD comes after the first reconcile, nobody resets anything", false, (*replay).reconciler},
		// Stock gets this right: if a lookup names a version that it does not know, it asks the server.
		story{"R2-version", "a wholly new group, looked up with its version (stock recovers)", true, (*replay).versionGiven},
		story{"R3", "a kind is deleted, the mapper is reset", false, (*replay).deletedKind},
		story{"R4", "a kind comes back with another scope, the mapper is reset", false, (*replay).otherScope},
		story{"R5-miss", "the preferred version changes, then a lookup in that group misses", false, preferredVersionAfter("lookup Absent")},
		story{"R5-reset", "the preferred version changes, then the mapper is reset", false, preferredVersionAfter("reset")},
	)
}

func (r *replay) newVersion() {
	r.knows(r.kind("Anchor", "v1"), "lookup Anchor", "v1, namespaced")
	r.install(r.kind("Widget", "v2"))
	r.heal("v2, namespaced", "lookup Widget")
}

func (r *replay) versionGiven() {
	r.knows(r.kind("Anchor", "v1"), "lookup ConfigMap", "v1, namespaced")
	r.group = "late." + r.group
	r.ask("lookup Widget v1", "no match")
	r.ask("lookup Widget v1", "no match")
	r.install(r.kind("Widget", "v1"))
	r.heal("v1, namespaced", "lookup Widget v1")
	for _, s := range r.sides {
		if s.tries != 1 || s.requests != 1 {
			r.t.Errorf("%s: %s; a lookup with its version reads that version alone: want one request and one try", s.called, s.verdict())
		}
	}
}

func (r *replay) deletedKind() {
	widget := r.kind("Widget", "v1")
	r.knows(widget, "lookup Widget", "v1, namespaced")
	r.uninstall(widget)
	r.heal("no match", "reset", "lookup Widget")
}

func (r *replay) otherScope() {
	widget := r.kind("Widget", "v1")
	r.knows(widget, "lookup Widget", "v1, namespaced")
	r.uninstall(widget)
	widget.Cluster = true
	r.settle(widget)
	r.heal("v1, cluster-wide", "reset", "lookup Widget")
}

func preferredVersionAfter(command string) func(*replay) {
	return func(r *replay) {
		r.knows(r.kind("Widget", "v1beta1"), "lookup Widget", "v1beta1, namespaced")
		r.settle(r.kind("Widget", "v1beta1", "v1"))
		r.ask("lookup Widget", "v1beta1, namespaced") // neither stock nor the fork rechecks a hit
		r.heal("v1, namespaced", command, "lookup Widget")
	}
}

// knows starts `heal report` on both sides, beside a kind, and asks it.
func (r *replay) knows(kind Kind, command, want string) {
	r.t.Helper()
	r.settle(kind)
	r.start(func(*side) []string { return []string{"report"} })
	r.ask(command, want)
}

// answer is a line that `heal report` prints.
type answer struct {
	OK                bool
	GroupVersion      string
	Scope             string
	NoMatch           bool
	Error             string
	DiscoveryRequests int
}

func (a answer) String() string {
	scope := map[string]string{"root": ", cluster-wide", "namespace": ", namespaced"}[a.Scope]
	switch {
	case a.OK:
		return a.GroupVersion[strings.Index(a.GroupVersion, "/")+1:] + scope
	case a.NoMatch:
		return "no match"
	default:
		return a.Error
	}
}

// in puts the replay's group into a command. ConfigMap has none.
func (r *replay) in(command string) string {
	return strings.NewReplacer("Anchor", "Anchor."+r.group, "Widget", "Widget."+r.group, "Absent", "Absent."+r.group).Replace(command)
}

func (s *side) ask(command string) (a answer, err error) {
	line, err := s.process.ask(command)
	if err == nil {
		err = json.Unmarshal(line, &a)
	}
	return a, err
}

// ask asks both sides, whose answers must be right: the replay builds on them.
func (r *replay) ask(command, want string) {
	r.t.Helper()
	r.both(command, func(s *side) error {
		a, err := s.ask(r.in(command))
		if err == nil && a.String() != want {
			err = fmt.Errorf("got %+v, want %s", a, want)
		}
		return err
	})
}

// heal asks both sides, right after the server changed, until the last command is answered
// right. All commands are sent at every try. The first lookup of the fork must be right.
func (r *replay) heal(want string, commands ...string) {
	r.t.Helper()
	r.both(strings.Join(commands, ", "), func(s *side) error {
		begun, most := time.Now(), giveUpTries
		if s.ours {
			most = 1
		}
		for ; s.tries < most && !s.healed; s.tries++ {
			if s.tries > 0 {
				time.Sleep(tryEvery)
			}
			var a answer
			for _, command := range commands {
				var err error
				if a, err = s.ask(r.in(command)); err != nil {
					return err
				}
				s.requests += a.DiscoveryRequests
			}
			s.healed = a.String() == want
		}
		s.took = time.Since(begun)
		return nil
	})
}

// reconciler runs `heal manager`: one namespace and ConfigMap a side, since both
// managers run at the same time.
func (r *replay) reconciler() {
	r.settle(r.kind("Anchor", "v1"))
	for _, s := range r.sides {
		must(r.t, s.server.Client.Create(s.ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
			Namespace: s.namespace(), Name: configMap, Annotations: map[string]string{"heal.example.com/kind": "Widget." + r.group},
		}}))
	}
	r.start(func(s *side) []string {
		return []string{"manager", "-namespace", s.namespace(), "-retry", tryEvery.String()}
	})
	r.both("reconciles before the kind is there", func(s *side) error {
		return s.await("two reconciles", func() (bool, error) {
			now, err := s.reconciles()
			return now.state == "NotServed" && now.attempts >= 2, err
		})
	})
	r.install(r.kind("Widget", "v2"))
	r.both("later reconciles", func(s *side) error {
		begun := time.Now()
		before, err := s.reconciles()
		if err != nil {
			return err
		}
		var now reconciles
		err = s.await("to reconcile", func() (ok bool, err error) {
			now, err = s.reconciles()
			return now.state == "Ready" || now.attempts >= before.attempts+giveUpTries, err
		})
		s.healed, s.took, s.tries, s.requests = now.state == "Ready", time.Since(begun), now.attempts-before.attempts, now.requests-before.requests
		// The attempt after the one last recorded may have begun before the server served the kind. The next has not.
		if s.ours && s.tries > 2 {
			r.t.Errorf("%s: %d reconciles were needed after the CRD came; the second one began after it, and has to find the kind", s.called, s.tries)
		}
		return err
	})
}

const configMap = "ask"

// reconciles is what the reconciler wrote into the ConfigMap.
type reconciles struct {
	state              string
	attempts, requests int
}

func (s *side) reconciles() (reconciles, error) {
	var cm corev1.ConfigMap
	if err := s.server.Client.Get(s.ctx, client.ObjectKey{Namespace: s.namespace(), Name: configMap}, &cm); err != nil {
		return reconciles{}, err
	}
	attempts, _ := strconv.Atoi(cm.Data["attempts"]) // none written yet
	requests, _ := strconv.Atoi(cm.Data["discoveryRequests"])
	return reconciles{state: cm.Data["state"], attempts: attempts, requests: requests}, nil
}
