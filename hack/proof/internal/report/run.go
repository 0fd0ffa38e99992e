// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/klog/v2"
)

// Out adds the flag -o to those of a proof.
func Out() *string { return flag.String("o", "results", "folder to write to") }

// Main parses the flags and runs a proof, until it is interrupted at the most. What
// client-go says about what is done to it is not shown.
func Main(name string, run func(context.Context) error) {
	flag.Parse()
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Pause waits, but not longer than ctx lasts.
func Pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// Broken collects what went wrong. The zero value is empty; it is for many
// goroutines at once.
type Broken struct {
	mu   sync.Mutex
	list []string // the first of all
	all  int
}

const mostShown = 50

// Add notes something, and says it at once.
func (b *Broken) Add(format string, args ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	text := time.Now().UTC().Format(time.TimeOnly) + " " + fmt.Sprintf(format, args...)
	if b.all++; b.all <= mostShown {
		fmt.Fprintln(os.Stderr, "BROKEN:", text)
		b.list = append(b.list, text)
	}
}

// Finish ends the page with what went wrong, or that nothing did, writes it and
// its plots to NAME.md and NAME.svg in the folder, shows it, and returns an error
// if something went wrong.
func (p *Page) Finish(dir, name string, broken *Broken, plots ...Plot) error {
	broken.mu.Lock()
	defer broken.mu.Unlock()
	list := broken.list
	if more := broken.all - len(list); more > 0 {
		list = append(list, fmt.Sprintf("and %d more", more))
	}
	failed := p.Failures(list)
	if len(plots) > 0 {
		if err := Write(dir, name+".svg", plots...); err != nil {
			return err
		}
	}
	if err := p.Write(dir, name+".md"); err != nil {
		return err
	}
	return failed
}
