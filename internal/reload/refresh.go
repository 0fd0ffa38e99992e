// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Refresh reads the document. Then it reads live what the document leaves open: disputed
// and dropped groups, groups that were reset, and, without the aggregated document, the
// versions that were read before. It returns an error if the server could not be read. It
// stops when ctx ends.
//
// It waits at most settleFor for live reads: one group that hangs must not delay the next
// refresh of all others.
func (r *Reloader) Refresh(ctx context.Context) error {
	f, err := r.flights.doWhile(ctx, snapshot.Read{Part: snapshot.PartDocument})
	if err != nil {
		return err
	}
	if f.outcome.Err != nil {
		return f.outcome.Err
	}
	if err := r.settle(ctx, f.seen); err != nil {
		return err
	}
	r.recordRefresh()
	return nil
}

// RefreshGroups reads groups live, each with every version that it has. It reads them
// side by side, so that a group that hangs does not hold up the others. Its error joins
// the errors of all reads that failed.
func (r *Reloader) RefreshGroups(ctx context.Context, groups []string) error {
	groups = slices.Compact(slices.Sorted(slices.Values(groups)))
	errs := make([]error, len(groups))
	var all sync.WaitGroup
	for i, group := range groups {
		all.Add(1)
		go func() {
			defer all.Done()
			errs[i] = r.refreshGroup(ctx, group)
		}()
	}
	all.Wait()
	return errors.Join(errs...)
}

func (r *Reloader) refreshGroup(ctx context.Context, group string) error {
	list, err := r.flights.do(ctx, snapshot.Read{Part: snapshot.PartList, Group: group})
	if err != nil {
		return fmt.Errorf("read group %q: %w", group, err)
	}
	errs := []error{list.outcome.Err}
	for _, version := range list.seen.LiveReads(group)[1:] {
		f, err := r.flights.do(ctx, version)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("read group %q: %w", group, err))...)
		}
		errs = append(errs, f.outcome.Err)
	}
	return errors.Join(errs...)
}

// ReadAll reads everything that the server serves. From then on every Refresh does so,
// too.
func (r *Reloader) ReadAll(ctx context.Context) error {
	r.all.Store(true)
	return r.Refresh(ctx)
}

// ReadLive reads a version live, or the whole group if gv has no version. It returns the
// snapshot after that.
func (r *Reloader) ReadLive(ctx context.Context, gv schema.GroupVersion) (*snapshot.Snapshot, error) {
	if gv.Version == "" {
		err := r.RefreshGroups(ctx, []string{gv.Group})
		return r.Snapshot(), err
	}
	f, err := r.flights.do(ctx, snapshot.Read{Part: snapshot.PartVersion, Group: gv.Group, Version: gv.Version})
	if err != nil {
		return nil, err
	}
	return f.seen, f.outcome.Err
}

const (
	// settleFor is how long a refresh waits for its live reads.
	settleFor = 5 * time.Second
	// mostDropped is how many of the groups that a document drops are read live, besides
	// as many that hang. If all of these are gone, so are the others.
	mostDropped = 3
	// askFor is how long one of them may delay the next. It suffices for a 404 that is
	// doubted.
	askFor = 1500 * time.Millisecond
)

// settle makes the live reads that a document, which was just read, leaves open. It
// returns an error if no group's reads got a connection to the server.
func (r *Reloader) settle(ctx context.Context, s *snapshot.Snapshot) error {
	disputed, dropped := s.Unsettled()
	open := map[string][]snapshot.Read{}
	for _, g := range append(disputed, s.Awaited()...) {
		open[g.Name()] = s.LiveReads(g.Name())
	}
	if !s.Aggregated() {
		r.addVersionsRead(s, open)
	}
	ended := make(chan error, len(open)+1)
	for _, reads := range open {
		go func() { ended <- r.readLive(ctx, reads) }()
	}
	go func() { ended <- r.lookForDropped(ctx, dropped) }()
	timer := time.NewTimer(settleFor)
	defer timer.Stop()
	var failed error
	unreached := 0
	for range len(open) + 1 {
		select {
		case err := <-ended:
			if unreachable(err) {
				failed = err
				unreached++
			}
		case <-timer.C:
			return nil
		}
	}
	if unreached > 0 && unreached >= len(open) {
		return failed
	}
	return nil
}

// readLive makes the reads of one group, as long as the server can be reached.
func (r *Reloader) readLive(ctx context.Context, reads []snapshot.Read) error {
	for _, read := range reads {
		f, err := r.flights.doWhile(ctx, read)
		if err != nil {
			return err
		}
		if unreachable(f.outcome.Err) {
			return f.outcome.Err
		}
	}
	return nil
}

// addVersionsRead adds to open, by group, the versions that were read before, or all
// versions if ReadAll was called.
func (r *Reloader) addVersionsRead(s *snapshot.Snapshot, open map[string][]snapshot.Read) {
	all := r.all.Load()
	for _, g := range s.Groups() {
		if open[g.Name()] != nil {
			continue
		}
		for _, v := range g.Versions() {
			if all || v.Table != nil || v.Err != nil {
				open[g.Name()] = append(open[g.Name()], snapshot.Read{Part: snapshot.PartVersion, Group: g.Name(), Version: v.Name})
			}
		}
	}
}

// lookForDropped reads one version of a few of the groups that the document has dropped.
// If each of them answers 404, all dropped groups are gone. An API server that starts
// serves a document without its CustomResourceDefinitions for a moment, while their
// versions answer 503 or 200. The reads are made one after the other, because a 503 casts
// doubt on the next 404. But one that hangs delays the next only by askFor, and one more
// group is asked instead.
func (r *Reloader) lookForDropped(ctx context.Context, dropped []*snapshot.Group) error {
	var asked []*question
	slow := 0
	for _, g := range dropped {
		if slow == mostDropped || len(asked)-slow == mostDropped {
			break
		}
		q := r.ask(ctx, g)
		asked = append(asked, q)
		select {
		case <-q.ended:
		case <-time.After(askFor):
			slow++
		}
	}
	r.forgetDropped(dropped, asked)
	var errs []error
	for _, q := range asked {
		<-q.ended
		errs = append(errs, q.err)
	}
	if slow > 0 {
		r.forgetDropped(dropped, asked) // the slow ones may have answered 404
	}
	return errors.Join(errs...)
}

// question is the read of a version of a group that the document has dropped.
type question struct {
	group string
	ended chan struct{} // closed when the rest has been written

	gone, unanswered bool
	err              error
}

func (r *Reloader) ask(ctx context.Context, g *snapshot.Group) *question {
	q := &question{group: g.Name(), ended: make(chan struct{})}
	go func() {
		defer close(q.ended)
		if len(g.Versions()) == 0 {
			return
		}
		f, err := r.flights.doWhile(ctx, snapshot.Read{Part: snapshot.PartVersion, Group: g.Name(), Version: g.Versions()[0].Name})
		if err != nil {
			q.unanswered, q.err = true, err
			return
		}
		q.gone, q.unanswered = f.outcome.Absent, discovery.Unanswered(f.outcome.Err)
	}()
	return q
}

// forgetDropped forgets the dropped groups that were not asked if mostDropped groups have
// answered 404, and none has answered anything else. Those that have not answered stay:
// they may still do so.
func (r *Reloader) forgetDropped(dropped []*snapshot.Group, asked []*question) {
	gone := 0
	var silent []string
	for _, q := range asked {
		select {
		case <-q.ended:
		default:
			silent = append(silent, q.group)
			continue
		}
		switch {
		case q.gone:
			gone++
		case q.unanswered:
			silent = append(silent, q.group)
		default:
			return
		}
	}
	if gone >= mostDropped && len(dropped) > len(asked) {
		r.publish(func(s *snapshot.Snapshot) *snapshot.Snapshot { return s.WithoutDropped(silent...) })
	}
}
