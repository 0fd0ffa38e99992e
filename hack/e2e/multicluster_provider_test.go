// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// mapperProvider has the type of cluster.Options.MapperProvider. Nil is stock.
type mapperProvider = func(*rest.Config, *http.Client) (meta.RESTMapper, error)

// build is a program on stock controller-runtime, with our mapper or without it.
type build struct {
	provider mapperProvider
	result   *Result
	begun    time.Time
	requests atomic.Int64 // made by its clusters
}

func newBuilds(name, title string) [2]*build {
	stock := &Result{Program: "multicluster", Replay: name, Title: title, Build: "stock " + tree.Newest()}
	ours := &Result{Program: "multicluster", Replay: name, Title: title, Build: "provider", Fork: true}
	return [2]*build{
		{result: stock, begun: time.Now()},
		{result: ours, begun: time.Now(), provider: apiutil.NewDynamicRESTMapper},
	}
}

func (b *build) ours() bool { return b.result.Fork }

func (b *build) cluster(t *testing.T, cfg *rest.Config) cluster.Cluster {
	t.Helper()
	cfg = rest.CopyConfig(cfg)
	cfg.Wrap(func(next http.RoundTripper) http.RoundTripper { return &counted{next, &b.requests} })
	c, err := cluster.New(cfg, func(opts *cluster.Options) { opts.MapperProvider = b.provider })
	must(t, err)
	return c
}

// counted counts requests on their way.
type counted struct {
	next http.RoundTripper
	n    *atomic.Int64
}

func (c *counted) RoundTrip(req *http.Request) (*http.Response, error) {
	c.n.Add(1)
	return c.next.RoundTrip(req)
}

func (b *build) step(what, outcome string, ok bool, requests int) {
	b.result.Steps = append(b.result.Steps, Step{
		Seconds: time.Since(b.begun).Seconds(), What: what, Outcome: outcome, OK: ok, Requests: requests,
	})
}

// TestMapperProvider shows that one line heals a cluster.Cluster, with no fork and
// no call of Reset. ResetOnNoMatch has nothing to reset on stock, and says so.
func TestMapperProvider(t *testing.T) {
	log.SetLogger(logr.Discard())
	const group = "m5.example.com"
	server, cfg := startServer(t.Context(), t)
	installNow(t, server, Kind{Group: group, Kind: "Tunnel", Versions: []string{"v1"}})
	builds := newBuilds("M5", "MapperProvider alone: a kind comes after a lookup")
	t.Cleanup(func() { record(t, builds[0].result, builds[1].result) })
	peer := schema.GroupKind{Group: group, Kind: "Peer"}
	mappers := map[*build]meta.RESTMapper{}
	for _, b := range builds {
		mappers[b] = b.cluster(t, cfg).GetRESTMapper()
		_, err := mappers[b].RESTMapping(peer)
		if !meta.IsNoMatchError(err) {
			t.Fatalf("%s: got error %v, want a NoMatch", b.result.Build, err)
		}
	}
	installNow(t, server, Kind{Group: group, Kind: "Peer", Versions: []string{"v2"}})
	for _, b := range builds {
		b.heal(t, mappers[b], peer)
		b.resetOnNoMatch(t, mappers[b], peer)
	}
}

func installNow(t *testing.T, server *Server, kind Kind) {
	t.Helper()
	must(t, server.Install(t.Context(), kind), server.AwaitServed(t.Context(), kind))
}

// heal looks a kind up until it is found, or stock has had its chance.
func (b *build) heal(t *testing.T, mapper meta.RESTMapper, peer schema.GroupKind) {
	t.Helper()
	begun := time.Now()
	asked := b.requests.Load()
	var mapping *meta.RESTMapping
	for b.result.Tries < giveUpAfter && mapping == nil {
		if b.result.Tries > 0 {
			time.Sleep(tryEvery)
		}
		b.result.Tries++
		mapping, _ = mapper.RESTMapping(peer) // nil if there is an error
	}
	b.result.Millis, b.result.Requests = millisSince(begun), int(b.requests.Load()-asked)
	b.result.Healed = mapping != nil
	b.result.Expected = b.result.Healed == b.ours() && (!b.ours() || b.result.Tries == 1)
	outcome := "no match"
	if mapping != nil {
		outcome = mapping.GroupVersionKind.Version
	}
	b.step("look up Peer", times(outcome, b.result.Tries), mapping != nil, b.result.Requests)
	if !b.result.Expected {
		t.Errorf("%s: got %s, %s", b.result.Build, outcome, b.result.Verdict())
	}
}

// resetOnNoMatch resets our mapper for a NoMatch. It cannot reset stock's mapper,
// which keeps giving the same answer.
func (b *build) resetOnNoMatch(t *testing.T, mapper meta.RESTMapper, peer schema.GroupKind) {
	t.Helper()
	reset := apiutil.ResetOnNoMatch(&meta.NoKindMatchError{GroupKind: peer}, mapper)
	asked := b.requests.Load()
	_, err := mapper.RESTMapping(peer)
	outcome := "true"
	if !reset {
		outcome = "false"
	}
	b.step("ResetOnNoMatch", outcome, reset, int(b.requests.Load()-asked))
	if reset != b.ours() || (err == nil) != b.ours() {
		b.result.Expected = false
		t.Errorf("%s: ResetOnNoMatch returned %t, and the lookup after it %v", b.result.Build, reset, err)
	}
}
