// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package reload

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// A caller who abandons a flight ends one that nobody else waits for, and returns when it has
// ended. One that others wait for goes on. Nobody joins one that is abandoned: its transport
// may take a while to stop, and the end of another caller's context is no answer.
func TestAbandonedFlightEnds(t *testing.T) {
	for name, test := range map[string]struct {
		asked  time.Duration // when another caller asks
		answer string
		ends   time.Duration // when the one who abandons it gets its error
	}{
		"alone":  {550 * time.Millisecond, "flight 2", 600 * time.Millisecond},
		"shared": {0, "flight 1", 500 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			flown := 0
			fs := &flights{tick: func() snapshot.Tick { flown++; return snapshot.Tick(flown) }, current: func() *snapshot.Snapshot { return nil }}
			fs.perform = func(f *flight) {
				f.outcome.Err = fmt.Errorf("flight %d", f.began)
				select {
				case <-time.After(time.Second):
				case <-f.ctx.Done():
				}
				time.Sleep(100 * time.Millisecond) // also if it was cancelled
			}
			ctx, cancel := context.WithCancel(context.Background())
			time.AfterFunc(500*time.Millisecond, cancel)
			start := time.Now()
			go func() {
				x := reading{flights: fs, patience: forever, since: never, abandon: true, done: map[snapshot.Read]snapshot.Outcome{}}
				_, err := x.read(ctx, snapshot.ReadVersion("a", "v1"))
				if took := time.Since(start); !errors.Is(err, context.Canceled) || took != test.ends {
					t.Errorf("%s: %v after %v", name, err, took)
				}
			}()
			time.Sleep(test.asked)
			synctest.Wait()
			x := reading{flights: fs, patience: forever, done: map[snapshot.Read]snapshot.Outcome{}}
			if o, err := x.read(context.Background(), snapshot.ReadVersion("a", "v1")); err != nil || o.Err.Error() != test.answer {
				t.Errorf("%s: %v; want %s", name, o, test.answer)
			}
			synctest.Wait()
		})
	}
}
