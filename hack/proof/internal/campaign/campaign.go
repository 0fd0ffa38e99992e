// SPDX-License-Identifier: Apache-2.0

// Package campaign is for long tests of the promises, which write a page about the
// result:
//
//	go test ./chaos -v -timeout 0 -args -kills 100 -etcd 20 -o results
package campaign

import (
	"bytes"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/hack/bench/chart"
	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	out  = flag.String("o", "", "`folder` to write the page and the plots to, seen from hack/proof; empty: none")
	seed = flag.Uint64("seed", 0, "of what is random; 0: a random one")
)

// Campaign is one that is under way. Its methods are for many goroutines at once.
type Campaign struct {
	*testing.T
	Ctx  context.Context // ends when somebody interrupts the test
	Seed uint64

	name   string
	begun  time.Time
	mu     sync.Mutex
	broken []string
}

// Begin begins the campaign of a folder of hack/proof, and changes to hack/proof.
// It silences client-go's log, which is full of the faults that the campaign makes.
func Begin(t *testing.T, name string) *Campaign {
	t.Chdir("..")
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	return &Campaign{T: t, Ctx: ctx, Seed: cmp.Or(*seed, uint64(rand.Uint32())), name: name, begun: time.Now()}
}

// Random returns a source of random numbers for one goroutine.
func (c *Campaign) Random(stream uint64) *rand.Rand { return rand.New(rand.NewPCG(c.Seed, stream)) }

// Pause waits, but not longer than ctx lasts.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// LiveHeap returns the bytes of the process's heap that are live.
func LiveHeap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc)
}

// GoTest runs go test in a folder, shows what it prints, and returns it.
func (c *Campaign) GoTest(dir string, env []string, args ...string) (string, error) {
	var said bytes.Buffer
	both := io.MultiWriter(&said, os.Stderr)
	_, err := proc.Command{
		Dir: dir, Env: append(env, "GOWORK=off"), Args: append([]string{"go", "test"}, args...), Stdout: both, Stderr: both,
	}.Run(c.Ctx)
	return said.String(), err
}

// Broken notes that something went wrong, which fails the test.
func (c *Campaign) Broken(format string, args ...any) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := time.Now().UTC().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...)
	c.broken = append(c.broken, text)
	c.Fail()
	if len(c.broken) <= mostShown {
		c.Log("BROKEN: " + text)
	}
}

const mostShown = 50

// Page begins the page of the campaign.
func (c *Campaign) Page(title string) *report.Page {
	command := "go test ./" + c.name + " -v -timeout 0 -args"
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "o" && !strings.HasPrefix(f.Name, "test.") {
			command += " -" + f.Name + " " + f.Value.String()
		}
	})
	return report.NewPage(title, command, time.Since(c.begun))
}

// Finish ends the page with what went wrong, or with the words that nothing did. It
// shows the page, and writes it and its plots. A campaign that was interrupted fails,
// and leaves the page of the last one that was not.
func (c *Campaign) Finish(p *report.Page, plots ...chart.Plot) {
	if c.Ctx.Err() != nil {
		c.Fatal("interrupted: no page is written")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.broken); n == 0 {
		p.Text("Nothing that was promised was broken.\n")
	} else {
		p.Text("**%d promises were broken:**\n\n- %s\n", n, strings.Join(c.broken[:min(n, mostShown)], "\n- "))
	}
	dir := cmp.Or(*out, c.TempDir())
	if len(plots) > 0 {
		if err := chart.Write(filepath.Join(dir, c.name+".svg"), 300, plots...); err != nil {
			c.Error(err)
		}
	}
	if err := p.Write(dir, c.name+".md"); err != nil {
		c.Error(err)
	}
}

// Kind is a kind that is served throughout.
type Kind struct {
	schema.GroupVersionKind
	Resource string
	Cluster  bool // not of a namespace
}

// Find looks up a kind that is served throughout. It notes a NoMatch and a wrong
// mapping; other errors are allowed while a server is unwell.
func (c *Campaign) Find(ctx context.Context, m *apiutil.DynamicRESTMapper, k Kind, versions ...string) error {
	c.Helper()
	mapping, err := m.RESTMappingWithContext(ctx, k.GroupKind(), versions...)
	switch {
	case meta.IsNoMatchError(err):
		c.Broken("%s, which is served throughout, with the versions %v: %v", k, versions, err)
	case err == nil && (mapping.Resource != k.GroupVersion().WithResource(k.Resource) || mapping.Scope.Name() == meta.RESTScopeNameRoot != k.Cluster):
		c.Broken("%s is mapped to %v, %v", k, mapping.Resource, mapping.Scope.Name())
	}
	return err
}

// Miss looks up a kind that is never served, without a version if never has none.
func (c *Campaign) Miss(ctx context.Context, m *apiutil.DynamicRESTMapper, never schema.GroupVersionKind) {
	c.Helper()
	if mapping, err := m.RESTMappingWithContext(ctx, never.GroupKind(), strings.Fields(never.Version)...); err == nil {
		c.Broken("%s, which never was, is mapped to %v", never, mapping.Resource)
	}
}
