// SPDX-License-Identifier: Apache-2.0

// Package report tells people how a mapper does: in the log, in metrics, by its health and on a debug page. No lookup
// and no read waits for it, except that a miss waits for the method Miss of the metrics.
//
//	report.go              what is reported, when a read has ended and otherwise
//	      ↓
//	health.go              how the reads have gone
//	hint.go                where the kind of a NoMatch is served instead
//	names.go               names of callers, which may have any length
//	lines.go, page.go      the debug page, and the lines of the log that it shows
//	queue.go               calls of the log and of metrics, one after the other
package report

import (
	"cmp"
	"path"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Metrics is apiutil's DynamicRESTMapperMetrics, which says what its methods are for.
type Metrics interface {
	Request(path string, code int)
	Reload(reason string, duration time.Duration, err error)
	Miss(outcome string)
	Served(generation uint64, groups, kinds int, lastSuccess time.Time)
	Watching(open bool)
	Followed(who string)
	WaitingKinds(gvk schema.GroupVersionKind, caches int)
}

// Options are the settings of a Reporter.
type Options struct {
	Logger  logr.Logger
	Metrics Metrics // nil: none

	// FailureGap is how far apart two failures may be that count as following each other.
	FailureGap time.Duration

	// RefreshInterval and WatchAPIs are those of the mapper. They need Start.
	RefreshInterval time.Duration
	WatchAPIs       bool

	// Started reports whether Start was called, Watching whether all watches are open, and Snapshot
	// what is known now.
	Started  func() bool
	Watching func() bool
	Snapshot func() *snapshot.Snapshot
}

// Reporter reports what a mapper does. All methods may be called from any goroutine.
type Reporter struct {
	options Options
	queue   queue
	health  atomic.Pointer[Health] // stored by ReadEnded alone
	lines   lines
	cluster atomic.Pointer[string] // see SetCluster

	// Only calls in the queue use these, which run one after the other.
	logged          *snapshot.Snapshot // what the log says is served
	firstRead       time.Time          // when the first read ended
	warnedUnstarted bool
	hints           map[string]cachedHint // by the text of the error
}

// cachedHint is a hint that was computed in a generation.
type cachedHint struct {
	generation uint64
	text       string
}

// EndedRead is a read of the server that has ended.
type EndedRead struct {
	Read     snapshot.Read
	Duration time.Duration
	Outcome  snapshot.Outcome
	After    *snapshot.Snapshot // with what the read has found
}

// New makes a reporter. It starts no goroutine.
func New(options Options) *Reporter {
	r := &Reporter{options: options}
	r.health.Store(&Health{})
	return r
}

// Health returns how the reads have gone until now.
func (r *Reporter) Health() *Health { return r.health.Load() }

// Lines returns the latest lines of the log by their message. They belong to the caller.
func (r *Reporter) Lines() map[string][]map[string]any { return r.lines.all() }

// SetCluster sets the name of the cluster in each line of the log. Mappers of a fleet have one.
func (r *Reporter) SetCluster(name string) { r.cluster.Store(&name) }

// Logger returns the logger of the options. In a fleet its lines name the cluster.
func (r *Reporter) Logger() logr.Logger { return r.Named(r.options.Logger) }

// Named returns a logger whose lines, in a fleet, name the cluster.
func (r *Reporter) Named(logger logr.Logger) logr.Logger {
	if name := r.cluster.Load(); name != nil {
		return logger.WithValues("cluster", *name)
	}
	return logger
}

// Log calls write with the logger. Nobody waits for it.
func (r *Reporter) Log(write func(logr.Logger)) {
	r.queue.Add(func() { write(r.Logger()) })
}

// Requested reports a request for a path, and the status of the answer.
func (r *Reporter) Requested(path string, code int) {
	r.count(func(m Metrics) { m.Request(pathClass(path), code) })
}

// Watched reports that a watch begins to open, has opened or has ended.
func (r *Reporter) Watched() {
	r.count(func(m Metrics) { m.Watching(r.options.Watching()) })
}

// Followed reports that a client or a cache has followed a kind to another path.
func (r *Reporter) Followed(who string) {
	r.count(func(m Metrics) { m.Followed(who) })
}

// WaitingKinds reports how many caches wait for a kind now.
func (r *Reporter) WaitingKinds(gvk schema.GroupVersionKind, caches int) {
	r.count(func(m Metrics) { m.WaitingKinds(gvk, caches) })
}

// count calls the metrics, if there are any. Nobody waits for it.
func (r *Reporter) count(call func(Metrics)) {
	if metrics := r.options.Metrics; metrics != nil {
		r.queue.Add(func() { call(metrics) })
	}
}

// Missed reports that a lookup had to read the server. The lookup waits for it.
func (r *Reporter) Missed(outcome string) {
	if r.options.Metrics != nil {
		r.options.Metrics.Miss(outcome)
	}
}

// maxSnapshots is about how many of the waiting reports refer to a snapshot. A slow receiver gets the changes of the
// others merged.
const maxSnapshots = 8

// ReadEnded notes how a read has ended, and reports it. Several reads may end at once.
func (r *Reporter) ReadEnded(read EndedRead) {
	before, after := r.noteHealth(read)
	read.Read.Group = shortName(read.Read.Group)
	read.Read.Version = shortName(read.Read.Version)
	if r.queue.Waiting() >= maxSnapshots {
		read.After = nil
	}
	r.queue.Add(func() { r.reportRead(read, before, after) })
}

// noteHealth returns the health before a read ended, and after that.
func (r *Reporter) noteHealth(read EndedRead) (before, after *Health) {
	for {
		before = r.health.Load()
		next := before.after(time.Now(), read.Read.Part, read.Outcome, r.options.FailureGap)
		if r.health.CompareAndSwap(before, &next) {
			return before, &next
		}
	}
}

// The levels of lines in the log.
const (
	levelHints = 1 // about kinds that are served elsewhere
	levelReads = 4 // about each read, and each lookup that ended with NoMatch: klog's level for debugging
)

// reportRead logs and counts a read, and what it means for the health.
func (r *Reporter) reportRead(read EndedRead, before, after *Health) {
	r.warnUnstarted()
	r.log(levelReads, "reloaded API discovery",
		"reason", read.Read.Part.String(), "group", read.Read.Group, "version", read.Read.Version,
		"duration", read.Duration.String(), "error", errorText(read.Outcome.Err))
	failedBefore := before.Document.Err != nil
	failsNow := after.Document.Err != nil
	switch {
	case failsNow && !failedBefore:
		r.Logger().Error(read.Outcome.Err, "API discovery fails, known APIs are still served")
	case failedBefore && !failsNow:
		r.Logger().Info("API discovery works again",
			"failures", before.Document.Failures, "since", before.Document.FailingSince)
	}
	r.logChange(cmp.Or(read.After, r.options.Snapshot()))
	if metrics := r.options.Metrics; metrics != nil {
		now := r.options.Snapshot()
		metrics.Reload(read.Read.Part.String(), read.Duration, read.Outcome.Err)
		metrics.Served(now.Generation(), len(now.Groups()), now.CountKinds(), r.Health().LastSuccess)
	}
}

// startTimeout is how long a mapper may remain without Start. A manager calls Start only when the manager itself is
// started.
const startTimeout = time.Minute

// warnUnstarted logs one line if options need Start and nobody has called it in time. It is called after reads, because
// such a mapper has no goroutine that could notice that.
func (r *Reporter) warnUnstarted() {
	if r.firstRead.IsZero() {
		r.firstRead = time.Now()
	}
	needed := r.options.RefreshInterval > 0 || r.options.WatchAPIs
	if !needed || r.warnedUnstarted || r.options.Started() || time.Since(r.firstRead) < startTimeout {
		return
	}
	r.warnedUnstarted = true
	r.Logger().Info("RefreshInterval and WatchAPIs have no effect, because Start was not called: "+
		"add the mapper to the manager, mgr.Add(mapper), or engage its cluster in a Fleet",
		"refreshInterval", r.options.RefreshInterval, "watchAPIs", r.options.WatchAPIs)
}

// logChange logs what has changed since its last call: kinds as group/version.Kind, and versions whose kinds are not
// known. Reports of reads that ran side by side may come in another order than their snapshots.
func (r *Reporter) logChange(now *snapshot.Snapshot) {
	before := cmp.Or(r.logged, &snapshot.Snapshot{})
	if now.Generation() < before.Generation() {
		return
	}
	r.logged = now
	if now.Generation() == before.Generation() || !before.HasDocument() {
		return
	}
	names := map[snapshot.ChangeType][]string{}
	for _, c := range snapshot.Diff(before, now) {
		gvk := c.Mapping.GroupVersionKind
		names[c.Type] = append(names[c.Type], gvk.GroupVersion().String()+"."+gvk.Kind)
	}
	r.log(0, "served APIs changed", "generation", now.Generation(),
		"added", shortened(append(names[snapshot.ChangeAdded], UnreadSince(before, now)...)),
		"removed", shortened(append(names[snapshot.ChangeRemoved], UnreadSince(now, before)...)),
		"changed", shortened(names[snapshot.ChangeChanged]))
}

// UnreadSince lists the versions that now has and before has not, and whose kinds were never read.
func UnreadSince(before, now *snapshot.Snapshot) (unread []string) {
	for _, g := range now.Groups() {
		for _, v := range g.Versions() {
			if v.Table == nil && !before.Serves(g.Name(), v.Name) {
				unread = append(unread, schema.GroupVersion{Group: g.Name(), Version: v.Name}.String())
			}
		}
	}
	return unread
}

// maxHints is how many hints are remembered.
const maxHints = 100

// NoMatch reports that a lookup has found nothing.
func (r *Reporter) NoMatch(q snapshot.Query, err error) {
	q, err = boundedNames(q, err)
	r.queue.Add(func() {
		hint, isNew := r.hint(err)
		r.log(levelReads, "looked up what is not served",
			"group", q.Group, "versions", q.Versions, q.NameType(), q.Name, "servedAs", hint)
		if isNew && hint != "" {
			log := r.Logger().V(levelHints)
			log.Info("looked up a kind where it is not served", "error", err.Error(), "servedAs", hint)
		}
	})
}

// hint returns the hint for an error, and whether it is the first time while the served API is the same.
func (r *Reporter) hint(err error) (text string, isNew bool) {
	s := r.options.Snapshot()
	cached, ok := r.hints[err.Error()]
	if ok && cached.generation == s.Generation() {
		return cached.text, false
	}
	if r.hints == nil || len(r.hints) >= maxHints {
		r.hints = map[string]cachedHint{}
	}
	hint := cachedHint{s.Generation(), Hint(s, err)}
	r.hints[err.Error()] = hint
	return hint.text, true
}

// log writes a line to the log, and keeps it for the debug page. Only calls in the queue call it.
func (r *Reporter) log(level int, message string, keysAndValues ...any) {
	r.Logger().V(level).Info(message, keysAndValues...)
	r.lines.add(message, keysAndValues)
}

// pathClass returns "document" for /api and /apis, "list" for /apis/<group>, and "version" for the path of a version.
// The server's address may put a prefix before them.
func pathClass(requested string) string {
	parent := path.Base(path.Dir(requested))
	last := path.Base(requested)
	switch {
	case last == "api" || last == "apis":
		return "document"
	case parent == "apis":
		return "list"
	default:
		return "version"
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}
