// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"math"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/util/workqueue"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// caller makes the reads of one lookup or of one refresh, and waits for each as R7 in DESIGN.md says. One that waits
// until reads are slow has to be closed.
type caller struct {
	r        *Reloader
	since    snapshot.Seq // calls that began later will do
	waits    waitPolicy
	deadline time.Time // for waitIfResponsive, of all reads together; zero: none
	cancels  bool      // the reads are the caller's own: they are canceled with its context

	mu   sync.Mutex                         // guards what follows, because groups are read side by side
	done map[snapshot.Read]snapshot.Outcome // how the reads have ended, or that the caller did not wait for them
	slow []*call                            // those that are worth coming back to, and may have ended since

	// own is what was known when the caller began, and what its own reads have found since; nil: it is not kept.
	own *snapshot.Snapshot
}

// waitPolicy is how long a caller waits for one of its reads.
type waitPolicy int

const (
	// waitUntilAnswered: the caller needs this very read.
	waitUntilAnswered waitPolicy = iota
	// waitUntilSlow: for slowThreshold. Then the caller makes its next reads. If these are not enough, it comes back
	// to the slow ones.
	waitUntilSlow
	// waitIfResponsive: the caller has an old answer, and can do without. It waits for slowThreshold and until its
	// deadline, and not at all for a path that is unresponsive. It does not come back.
	waitIfResponsive
	// waitIfAnsweredBefore is waitIfResponsive, and also does not wait for a version that is known to give no answer,
	// however long ago that was found.
	waitIfAnsweredBefore
)

const (
	// maxWait is how long a lookup that has an old answer waits in all (R7).
	maxWait = 3 * slowThreshold
	// maxParallel is how many groups a caller reads at a time.
	maxParallel = 8

	forever = time.Duration(math.MaxInt64)
)

func (r *Reloader) newCaller(since snapshot.Seq, waits waitPolicy) *caller {
	return &caller{r: r, since: since, waits: waits, done: map[snapshot.Read]snapshot.Outcome{}}
}

// readGroups makes reads: those of one group one after the other, and those of several groups side by side. It returns
// an error only if ctx has ended.
func (c *caller) readGroups(ctx context.Context, groups [][]snapshot.Read) error {
	workqueue.ParallelizeUntil(ctx, maxParallel, len(groups), func(i int) { c.readInTurn(ctx, groups[i]) })
	return discovery.Cause(ctx)
}

// readInTurn makes reads one after the other, until ctx ends.
func (c *caller) readInTurn(ctx context.Context, reads []snapshot.Read) {
	for _, read := range reads {
		if _, err := c.read(ctx, read); err != nil {
			return
		}
	}
}

// read makes one read, and waits for it. It returns an error only if ctx has ended; that of the read is in the outcome.
func (c *caller) read(ctx context.Context, read snapshot.Read) (snapshot.Outcome, error) {
	if ctx.Err() != nil {
		return snapshot.Outcome{}, discovery.Cause(ctx) // otherwise a call might start for nobody
	}
	switch c.waits {
	case waitUntilAnswered:
		return c.await(ctx, c.r.join(read, c.since), forever)
	case waitUntilSlow:
		return c.await(ctx, c.r.join(read, c.since), slowThreshold)
	}
	if !c.expectsAnswer(read) {
		// One attempt at a time goes on all the same, so that somebody notices when the path answers again.
		return c.await(ctx, c.r.join(read, c.since), 0)
	}
	remaining := c.remaining()
	if remaining <= 0 {
		return c.noteNotAwaited(read, maxWait), nil
	}
	return c.await(ctx, c.r.join(read, c.since), min(slowThreshold, remaining))
}

// expectsAnswer reports whether a caller that can do without a read waits for it at all.
func (c *caller) expectsAnswer(read snapshot.Read) bool {
	if c.r.isUnresponsive(read) {
		return false
	}
	return c.waits != waitIfAnsweredBefore || !c.r.givesNoAnswer(read)
}

// givesNoAnswer reports whether the version that a read is for, or one of the group that a list is of, is known to give
// no answer.
func (r *Reloader) givesNoAnswer(read snapshot.Read) bool {
	g := r.Snapshot().Group(read.Group)
	if g == nil || read.Part == snapshot.PartDocument {
		return false
	}
	return slices.ContainsFunc(g.Versions(), func(v snapshot.Version) bool {
		isAbout := read.Part == snapshot.PartGroup || v.Name == read.Version
		return isAbout && discovery.GivesNoAnswer(v.Err)
	})
}

// remaining returns how long the caller still waits in all.
func (c *caller) remaining() time.Duration {
	if c.deadline.IsZero() {
		return forever
	}
	return time.Until(c.deadline)
}

// await waits for a call, for atMost. It returns an error only if ctx has ended.
func (c *caller) await(ctx context.Context, joined *call, atMost time.Duration) (snapshot.Outcome, error) {
	timer := time.NewTimer(atMost)
	defer timer.Stop()
	select {
	case <-joined.done:
		return c.noteAnswered(joined), nil
	case <-timer.C:
		return c.noteSlow(joined, atMost), nil
	case <-ctx.Done():
		if c.cancels && errors.Is(ctx.Err(), context.Canceled) { // a deadline only ends the waiting
			c.r.cancel(joined)
		} else {
			c.r.leave(joined)
		}
		return snapshot.Outcome{}, discovery.Cause(ctx)
	}
}

// awaitSlow waits until the slow call at i has ended.
func (c *caller) awaitSlow(ctx context.Context, i int) error {
	slow := c.slow[i]
	c.slow = slices.Delete(c.slow, i, i+1)
	_, err := c.await(ctx, slow, forever)
	return err
}

// noteAnswered notes that a call has ended while the caller waited for it.
func (c *caller) noteAnswered(joined *call) snapshot.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[joined.read] = joined.outcome
	if c.own != nil {
		c.own = joined.follow(c.own)
	}
	return joined.outcome
}

// noteSlow notes that a call has not ended in time. It goes on.
func (c *caller) noteSlow(joined *call, waited time.Duration) snapshot.Outcome {
	switch c.waits {
	case waitIfResponsive, waitIfAnsweredBefore:
		c.r.leave(joined)
	default:
		c.mu.Lock()
		c.slow = append(c.slow, joined)
		c.mu.Unlock()
	}
	return c.noteNotAwaited(joined.read, waited)
}

// noteNotAwaited notes that the caller has not waited for the end of a read.
func (c *caller) noteNotAwaited(read snapshot.Read, waited time.Duration) snapshot.Outcome {
	c.mu.Lock()
	defer c.mu.Unlock()
	outcome := snapshot.Outcome{Err: discovery.NotAwaited(read, waited)}
	c.done[read] = outcome
	return outcome
}

// close leaves the slow calls.
func (c *caller) close() {
	for _, slow := range c.slow {
		c.r.leave(slow)
	}
}

// ReadLive reads a version live, by a call that begins later than ReadLive. It returns the snapshot after that.
func (r *Reloader) ReadLive(ctx context.Context, gv schema.GroupVersion) (*snapshot.Snapshot, error) {
	c := r.newCaller(onlyNewCalls, waitUntilAnswered)
	err := c.readOne(ctx, snapshot.ReadVersion(gv.Group, gv.Version))
	return r.Snapshot(), err
}

// ReadDocument reads the document, and nothing else, by a call that begins later than ReadDocument. If ctx is canceled
// and nobody else waits for the document, so is the read.
func (r *Reloader) ReadDocument(ctx context.Context) error {
	c := r.newCaller(onlyNewCalls, waitUntilAnswered)
	c.cancels = true
	return c.readOne(ctx, snapshot.ReadDocument)
}

// readOne makes one read, and returns its error.
func (c *caller) readOne(ctx context.Context, read snapshot.Read) error {
	outcome, err := c.read(ctx, read)
	if err != nil {
		return err
	}
	return outcome.Err
}
