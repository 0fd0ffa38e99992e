// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

var (
	out  = flag.String("o", "", "`folder` to write the page to; empty: none")
	seed = flag.Uint64("seed", 0, "of what is random; 0: a random one")
)

// Written reports whether somebody wants the pages, so that nothing may be skipped.
func Written() bool { return *out != "" }

// Campaign is a test that is under way, and its page. Broken is for many goroutines at once.
type Campaign struct {
	*testing.T
	Page
	Ctx  context.Context // ends when somebody interrupts the test
	Seed uint64

	begun  time.Time
	mu     sync.Mutex
	wrongs []string
}

// Begin begins a campaign.
func Begin(t *testing.T) *Campaign {
	ctx, stop := signal.NotifyContext(t.Context(), os.Interrupt, syscall.SIGTERM)
	t.Cleanup(stop)
	return &Campaign{T: t, Ctx: ctx, Seed: cmp.Or(*seed, uint64(rand.Uint32())), begun: time.Now()}
}

// Must ends the test if there is an error.
func (c *Campaign) Must(err error) {
	c.Helper()
	if err != nil {
		c.Fatal(err)
	}
}

// Random returns a source of random numbers for one goroutine.
func (c *Campaign) Random(stream int) *rand.Rand {
	return rand.New(rand.NewPCG(c.Seed, uint64(stream)))
}

// Command makes a command that ends with the campaign, and all that it has started with it.
func (c *Campaign) Command(dir string, env []string, args ...string) *exec.Cmd {
	c.Logf("in %s: %s", dir, strings.Join(args, " "))
	cmd := exec.CommandContext(c.Ctx, args[0], args[1:]...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(append(os.Environ(), "GOWORK=off"), env...), 10*time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	return cmd
}

// Pause waits, but not longer than ctx lasts.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Within waits for something, and returns how long it took.
func Within(ctx context.Context, most time.Duration, yes func() bool) (time.Duration, bool) {
	for begin := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		ok, took := yes(), time.Since(begin)
		if ok || took > most || ctx.Err() != nil {
			return took, ok
		}
	}
}

const mostShown = 50

// Broken notes that a promise was broken, which fails the test.
func (c *Campaign) Broken(format string, args ...any) {
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

// Finish writes the page, with what went wrong or the words that nothing did. A campaign that
// was interrupted fails, and leaves the page of the one before.
func (c *Campaign) Finish(title string) {
	if c.Ctx.Err() != nil {
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
	head := fmt.Sprintf(
		"# %s\n\nFrom a run of %s in hack/proof. `%s` runs it again. [What it does](../README.md).\n\n"+
			"Machine: %s. Seed %d.\n",
		title,
		Rounded(time.Since(c.begun)),
		command,
		Machine(),
		c.Seed,
	)
	name := strings.ToLower(strings.TrimPrefix(c.Name(), "Test")) + ".md"
	if err := c.Write(filepath.Join(cmp.Or(*out, c.TempDir()), name), head); err != nil {
		c.Error(err)
	}
}
