// SPDX-License-Identifier: Apache-2.0

// Package proof tests at length what DESIGN.md promises. Each campaign is a test. It is
// short unless flags make it longer, and it writes a page about what it has found:
//
//	go test -run '^TestChaos$' -v -timeout 0 . -args -kills 100 -etcd 20 -o results
package proof

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
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

var (
	out     = flag.String("o", "", "`folder` to write the page to; empty: none")
	seed    = flag.Uint64("seed", 0, "of what is random; 0: a random one")
	lasting = flag.Duration("time", 0, "how long the soak, the hostile servers or each fuzz target take; 0: seconds, and no fuzzing")
)

// campaign is one that is under way, and its page. broken is for many goroutines at once.
type campaign struct {
	*testing.T
	report.Page
	ctx  context.Context // ends when somebody interrupts the test
	seed uint64

	begun  time.Time
	mu     sync.Mutex
	wrongs []string
}

// TestMain silences client-go's log, which is full of the faults that the campaigns make.
func TestMain(m *testing.M) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}

func begin(t *testing.T) *campaign {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	return &campaign{T: t, ctx: ctx, seed: cmp.Or(*seed, uint64(rand.Uint32())), begun: time.Now()}
}

// random returns a source of random numbers for one goroutine.
func (c *campaign) random(stream int) *rand.Rand {
	return rand.New(rand.NewPCG(c.seed, uint64(stream)))
}

// pause waits, but not longer than ctx lasts.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// within waits for something, and returns how long it took.
func within(ctx context.Context, most time.Duration, yes func() bool) (time.Duration, bool) {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ok, took := yes(), time.Since(begin)
		if ok || took > most || ctx.Err() != nil {
			return took, ok
		}
	}
}

// liveHeap returns the MiB of the process's heap that are live.
func liveHeap() float64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return float64(stats.HeapAlloc) / (1 << 20)
}

// goTest runs go test in a folder, shows what it prints, and returns it. What go test
// has started ends with it.
func (c *campaign) goTest(dir string, env []string, args ...string) (string, error) {
	var said bytes.Buffer
	cmd := exec.CommandContext(c.ctx, "go", append([]string{"test"}, args...)...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "GOWORK=off"), env...)
	cmd.Stdout = io.MultiWriter(&said, os.Stderr)
	cmd.Stderr = cmd.Stdout
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	err := cmd.Run()
	return said.String(), err
}

const mostShown = 50

// broken notes that a promise was broken, which fails the test.
func (c *campaign) broken(format string, args ...any) {
	c.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	text := time.Now().UTC().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...)
	c.wrongs = append(c.wrongs, text)
	c.Fail()
	if len(c.wrongs) <= mostShown {
		c.Log("BROKEN: " + text)
	}
}

// finish writes the page, with what went wrong or the words that nothing did. A campaign that
// was interrupted fails, and leaves the page of the one before.
func (c *campaign) finish(title string) {
	if c.ctx.Err() != nil {
		c.Fatal("interrupted: no page is written")
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if n := len(c.wrongs); n == 0 {
		c.Text("Nothing that was promised was broken.")
	} else {
		c.Text("**%d promises were broken:**\n\n- %s", n, strings.Join(c.wrongs[:min(n, mostShown)], "\n- "))
	}
	command := "go test -run '^" + c.Name() + "$' -v -timeout 0 . -args"
	flag.Visit(func(f *flag.Flag) {
		if f.Name != "o" && !strings.HasPrefix(f.Name, "test.") {
			command += " -" + f.Name + " " + f.Value.String()
		}
	})
	head := fmt.Sprintf("# %s\n\nFrom a run of %s in hack/proof. `%s` runs it again.\n\nMachine: %s.\n",
		title, report.Rounded(time.Since(c.begun)), command, report.Machine())
	name := strings.ToLower(strings.TrimPrefix(c.Name(), "Test")) + ".md"
	if err := c.Write(filepath.Join(cmp.Or(*out, c.TempDir()), name), head); err != nil {
		c.Error(err)
	}
}
