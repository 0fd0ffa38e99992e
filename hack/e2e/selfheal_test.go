// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestSelfheal runs a watchdog of examples over two clusters, of which the first is the hosting cluster, too.
// The API server of the other is killed for a while that is tolerated, and then for one that is not. In that second
// outage the watchdog itself is started again.
func TestSelfheal(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	binary := build(ctx, t, "selfheal", "fork", nil)
	host, _ := startServer(ctx, t)
	b, _ := startServer(ctx, t)
	must(t, host.Client.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "selfheal"}}))
	secrets := map[string]*corev1.Secret{"a": clusterSecret(t, "selfheal", "a", host), "b": clusterSecret(t, "selfheal", "b", b)}
	for _, secret := range secrets {
		must(t, host.Client.Create(ctx, secret))
	}
	file := filepath.Join(t.TempDir(), "state.json")

	patient := startWatchdog(t, binary, host, file, "-tolerate", (10 * patience).String())
	patient.await("both clusters are healthy", func(c clusterRecords) bool { return c.are("Healthy", "Healthy") })
	revive := b.Kill()
	patient.await("an outage that is tolerated", func(c clusterRecords) bool { return c.are("Healthy", "Failing") })
	must(t, revive(ctx))
	patient.await("the end of that outage", func(c clusterRecords) bool { return c.are("Healthy", "Healthy") })
	if slices.ContainsFunc(patient.lines(), func(l Line) bool { return l.Msg == "Repairing a cluster" }) {
		t.Error("an outage that is tolerated was repaired")
	}
	patient.stop()

	const backoff = time.Second
	args := []string{"-tolerate", "1s", "-backoff", backoff.String(), "-backoff-max", (3 * backoff).String()}
	strict := startWatchdog(t, binary, host, file, args...)
	revive = b.Kill()
	next := map[int]time.Time{} // when the next repair is due, by the number of those before
	strict.await("four repairs", func(c clusterRecords) bool {
		next[c["b"].Repairs] = c["b"].NextRepair
		return c.are("Healthy", "Unhealthy") && c["b"].Repairs >= 4
	})
	for repairs := 2; repairs <= 4; repairs++ {
		want := min(backoff<<(repairs-1), 3*backoff)
		earlier, seen := next[repairs-1]
		if got := next[repairs].Sub(earlier); seen && got < want {
			t.Errorf("after %d repairs the next one is due %s after this one was, want %s at least", repairs, got, want)
		}
	}
	strict.stop()
	before := recordsIn(t, file)

	again := startWatchdog(t, binary, host, file, args...)
	again.await("the repairs go on", func(c clusterRecords) bool { return c["b"].Repairs > before["b"].Repairs })
	now := again.records()
	if now["b"].State != "Unhealthy" || !now["b"].Since.Equal(before["b"].Since) {
		t.Errorf("after a restart the cluster is %+v, want it unhealthy since before the restart: %+v", now["b"], before["b"])
	}
	must(t, revive(ctx))
	again.await("the end of the outage", func(c clusterRecords) bool { return c.are("Healthy", "Healthy") && c["b"].Repairs == 0 })
	must(t, host.Client.Delete(ctx, secrets["b"]))
	again.await("a cluster that was removed is forgotten", func(c clusterRecords) bool { return len(c) == 1 })
	again.stop()
	if left := recordsIn(t, file); len(left) != 1 || left["a"].State != "Healthy" {
		t.Errorf("at the end the file has %+v, want the cluster a alone", left)
	}
}

// watchdog is a selfheal that runs.
type watchdog struct {
	*Process
	t       *testing.T
	metrics string // its address
}

func startWatchdog(t *testing.T, binary string, host *Server, file string, args ...string) *watchdog {
	t.Helper()
	w := &watchdog{t: t, metrics: freeAddress(t.Context(), t)}
	args = append([]string{"-state", file, "-interval", "1s", "-health-probe-bind-address", "0", "-metrics-bind-address", w.metrics}, args...)
	w.Process = start(t.Context(), t, binary, host.Kubeconfig, args...)
	return w
}

// stop ends the program as a cluster does, and waits for it.
func (w *watchdog) stop() {
	w.t.Helper()
	must(w.t, w.cmd.Process.Signal(os.Interrupt))
	<-w.ended
	must(w.t, w.err)
}

// clusterRecords is what the program knows of each cluster.
type clusterRecords map[string]struct {
	State      string
	Since      time.Time
	Repairs    int
	NextRepair time.Time
}

// are reports whether there are two clusters, in these states.
func (c clusterRecords) are(a, b string) bool {
	return len(c) == 2 && c["a"].State == a && c["b"].State == b
}

func (w *watchdog) records() clusterRecords {
	w.t.Helper()
	records, err := w.ask(w.t.Context())
	must(w.t, err)
	return records
}

func (w *watchdog) ask(ctx context.Context) (records clusterRecords, err error) {
	_, body, err := httpDo(ctx, http.MethodGet, w.metrics, "/clusters")
	return records, errors.Join(err, json.Unmarshal([]byte(body), &records))
}

func (w *watchdog) await(what string, holds func(clusterRecords) bool) {
	w.t.Helper()
	must(w.t, await(w.t.Context(), what, func() (bool, error) {
		records, err := w.ask(w.t.Context())
		if err == nil && !holds(records) {
			err = fmt.Errorf("the clusters are %+v", records)
		}
		return err == nil, err
	}))
}

func recordsIn(t *testing.T, file string) (records clusterRecords) {
	t.Helper()
	text, err := os.ReadFile(file)
	must(t, err, json.Unmarshal(text, &records))
	return records
}
