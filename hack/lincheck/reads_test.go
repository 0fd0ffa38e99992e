// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"time"
)

// A view is a history, with what follows from its requests computed once.
type view struct {
	*History
	requests []*Request // those that ended
	period   map[*Request]int
	clean    map[int]bool          // periods without a failed request
	ends     map[int]time.Duration // of periods
	previous map[*Request]*Request // the document before a document
	began    map[*Request]Stamp    // when the read of a document began, with /api
	read     Stamp                 // the end of the first document that was read
}

func newView(h *History) *view {
	v := &view{
		History: h, period: map[*Request]int{}, clean: map[int]bool{}, ends: map[int]time.Duration{},
		previous: map[*Request]*Request{}, began: map[*Request]Stamp{}, read: Stamp{Seq: 1 << 60},
	}
	for _, r := range h.Requests {
		if r.End != (Stamp{}) {
			v.requests = append(v.requests, r)
		}
	}
	slices.SortFunc(v.requests, func(a, b *Request) int { return cmp.Compare(a.Start.Seq, b.Start.Seq) })
	v.findPeriods()
	v.findPrevious()
	return v
}

// findPeriods numbers the busy periods: between two of them virtual time passes while no request is under way.
func (v *view) findPeriods() {
	n, end := 0, time.Duration(-1)
	for _, r := range v.requests {
		if r.Start.At > end {
			n++
			v.clean[n] = true
		}
		end = max(end, r.End.At)
		v.period[r], v.ends[n] = n, end
		v.clean[n] = v.clean[n] && !r.failed()
	}
}

func (v *view) findPrevious() {
	var last *Request
	for _, r := range v.requests {
		if !r.Doc || r.failed() {
			continue
		}
		v.previous[r], last = last, r
		first := slices.IndexFunc(v.requests, func(core *Request) bool { return core.Path == "/api" && core.End.At == r.Start.At })
		if first >= 0 && !v.requests[first].failed() { // else it is half a document
			v.began[r] = v.requests[first].Start
			if r.End.before(v.read) {
				v.read = r.End
			}
		}
	}
}

// A fact is what a request tells about one kind in one version of a group.
type fact int

const (
	unknown fact = iota
	absent
	present
)

// says returns what the answer of a request tells. The document of a legacy server
// and the list of a group tell which versions there are and not what is in them.
func (v *view) says(r *Request, group, version, kind int) fact {
	switch {
	case r.failed() || r.live() && r.Group != group || !r.live() && !r.Doc:
		return unknown
	case r.live() && r.Version >= 0 && r.Version != version:
		return unknown
	case !r.World.has(group, version):
		return absent
	case r.live() && r.Version < 0 || r.Doc && v.Legacy:
		return unknown
	case r.World[group][kind].in(version):
		return present
	default:
		return absent
	}
}

// firstSeen returns the document that first told what r tells about a group, in an unbroken row of documents since a
// moment. A document in a period with failures breaks the row: the mapper may not have been able to use it.
func (v *view) firstSeen(r *Request, group int, since Stamp) *Request {
	for {
		before := v.previous[r]
		if before == nil || before.World[group] != r.World[group] || v.began[before].before(since) || !v.clean[v.period[before]] {
			return r
		}
		r = before
	}
}

// closed reports whether all that r's period found was known when o began.
func (v *view) closed(r *Request, o *Op) bool { return v.ends[v.period[r]] < o.Call.At }

// binding reports whether, when o began, r's answer must have replaced what was known about the version. Only a
// version's own path removes it (rule R1 in DESIGN.md), so a list or a document that does not have it replaced nothing.
// Neither did any answer in a period with a failure, nor a 404 that a document decides (rule R6).
func (v *view) binding(r *Request, o *Op, group, version int) bool {
	if !v.closed(r, o) || !v.clean[v.period[r]] {
		return false
	}
	if r.live() {
		return r.Version >= 0 && !v.undecided(r)
	}
	before := v.previous[r]
	return r.World.has(group, version) && v.firstSeen(r, group, Stamp{}) == r && (before == nil || v.clean[v.period[before]])
}

// undecided reports whether r answered 404 and a document decides whether that is an absence
// (rule R6): the server has failed a short time ago, or the version may be another API server's.
func (v *view) undecided(r *Request) bool {
	return r.Code == http.StatusNotFound && (builtIn(r.Group) && !v.Legacy || v.doubted(r.End))
}

// doubted reports whether a request has failed within gracePeriod before a moment.
func (v *view) doubted(at Stamp) bool {
	return slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.failed() && r.End.before(at) && at.At-r.End.At <= gracePeriod
	})
}

const (
	gracePeriod  = 30 * time.Second
	confirmAfter = time.Second // after a 404 the document is read that decides

	// slowThreshold is how long after a read without an answer no caller waits for the path that has an old one (R7).
	slowThreshold = 3 * time.Second
)

// resetBefore returns the last Reset that had returned when o began.
func (v *view) resetBefore(o *Op) (last Stamp) {
	for _, reset := range v.Ops {
		if reset.Kind == OpReset && reset.Return.before(o.Call) {
			last = later(last, reset.Call)
		}
	}
	return last
}

// lastReset returns the last Reset that was called before a moment.
func (v *view) lastReset(until Stamp) (last Stamp) {
	for _, o := range v.Ops {
		if o.Kind == OpReset && o.Call.before(until) {
			last = later(last, o.Call)
		}
	}
	return last
}

func later(a, b Stamp) Stamp {
	if a.before(b) {
		return b
	}
	return a
}

// troubled reports whether a fault that may concern o was there while it ran, or a request had got
// no answer a moment before: who has an old answer does not wait for that again (R7).
func (v *view) troubled(o *Op) bool {
	return slices.ContainsFunc(v.Faults, func(f *Fault) bool {
		return f.concerns(o) && overlaps(o, f.From, f.Until)
	}) || slices.ContainsFunc(v.requests, func(r *Request) bool {
		unresponsive := errors.Is(r.Err, context.DeadlineExceeded) && r.End.before(o.Return) && o.Call.At-r.End.At <= slowThreshold
		return r.Fault != nil && r.Fault.concerns(o) && (unresponsive || overlaps(o, r.Start, r.End))
	})
}

func overlaps(o *Op, from, until Stamp) bool {
	return from.before(o.Return) && o.Call.before(until)
}

// stillListed reports whether a lookup met a 404 shortly after a failure: if the document that
// decides still lists the version, being behind, what is known is served, or it is an error (R6).
func (v *view) stillListed(o *Op) bool {
	return (v.doubted(o.Call) || v.doubted(o.Return)) && slices.ContainsFunc(v.requests, func(r *Request) bool {
		return r.Code == http.StatusNotFound && slices.Contains(o.groups(), r.Group) && overlaps(o, r.Start, r.End)
	})
}

func filter[T any](list []T, keep func(T) bool) []T {
	var kept []T
	for _, item := range list {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}
