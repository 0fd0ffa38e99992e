// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"path"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DynamicRESTMapperMetrics counts what a mapper does. A hit calls none of its methods.
// They may be called from several goroutines at once. A lookup that misses waits for
// Miss, so Miss must return at once. Nobody waits for the other methods. They are called
// one after the other; if more than 1,024 calls wait, the oldest are dropped.
//
// If it also has a method Watching(open bool), that is called while Start runs with
// WatchAPIs: with false at first, and then whenever all watches have opened, or one of
// them is lost. If it has a method Followed(who string), that is called when a "client" or a
// "cache" that follows the mapper has followed a kind to another path.
type DynamicRESTMapperMetrics interface {
	// Request is called after each request. path is the class of its path: "document",
	// "list" or "version". code is the HTTP status of the answer, 0 if there was none.
	Request(path string, code int)

	// Reload is called after each read, which may take several requests. reason is the part
	// of the server that was read: "document", "list" or "version". err is nil if the read
	// succeeded.
	Reload(reason string, duration time.Duration, err error)

	// Miss is called for each lookup that the mapper could not answer from what it
	// knew. outcome is "found", "absent" or "failed".
	Miss(outcome string)

	// Served is called after each read, with what the mapper knows then. lastSuccess is the
	// time of the last successful read, or the zero time.
	Served(generation uint64, groups, kinds int, lastSuccess time.Time)
}

// reportWatching is called whenever a watch begins to open, has opened or has ended.
func (m *DynamicRESTMapper) reportWatching() {
	if metrics, ok := m.options.Metrics.(interface{ Watching(open bool) }); ok {
		m.reports.Add(func() { metrics.Watching(m.watching()) })
	}
}

// requested is called after each request.
func (m *DynamicRESTMapper) requested(of string, code int) {
	if metrics := m.options.Metrics; metrics != nil {
		m.reports.Add(func() { metrics.Request(pathClass(of), code) })
	}
}

// pathClass returns "document" for /api and /apis, "list" for /apis/<group>, and "version"
// for the path of a version. The server's address may put a prefix before them.
func pathClass(of string) string {
	switch parent, last := path.Base(path.Dir(of)), path.Base(of); {
	case last == "api" || last == "apis":
		return "document"
	case parent == "apis":
		return "list"
	default:
		return "version"
	}
}

// report logs and counts what a flight has done.
func (m *DynamicRESTMapper) report(r report) {
	m.warnUnstarted()
	m.tell(levelReads, "reloaded API discovery", "reason", r.Read.Part.String(), "group", r.Read.Group, "version", r.Read.Version,
		"duration", r.Duration.String(), "error", errorText(r.Outcome.Err))
	switch {
	case r.then.document.err != nil && r.before.document.err == nil:
		m.logger().Error(r.Outcome.Err, "API discovery fails, known APIs are still served")
	case r.then.document.err == nil && r.before.document.err != nil:
		m.logger().Info("API discovery works again", "failures", r.before.document.failures, "since", r.before.document.failingSince)
	}
	m.tellChange(cmp.Or(r.After, m.reloader.Snapshot()))
	if metrics := m.options.Metrics; metrics != nil {
		s := m.reloader.Snapshot()
		metrics.Reload(r.Read.Part.String(), r.Duration, r.Outcome.Err)
		metrics.Served(s.Generation(), len(s.Groups()), s.Kinds(), m.health.Load().lastSuccess)
	}
}

// tellChange tells what has changed since its last call: kinds in the form
// group/version.Kind, and versions whose kinds are not known. Reports of reads that ran
// side by side may come in another order than their snapshots.
func (m *DynamicRESTMapper) tellChange(now *snapshot.Snapshot) {
	before := cmp.Or(m.logged, &snapshot.Snapshot{})
	if now.Generation() < before.Generation() {
		return
	}
	if m.logged = now; now.Generation() == before.Generation() || !before.Read() {
		return
	}
	if !m.options.Logger.Enabled() && m.recent.Load() == nil {
		return // nobody would see what takes a look at each kind
	}
	names := map[snapshot.ChangeType][]string{}
	for _, c := range snapshot.Diff(before, now) {
		gvk := c.Mapping.GroupVersionKind
		names[c.Type] = append(names[c.Type], gvk.GroupVersion().String()+"."+gvk.Kind)
	}
	m.tell(0, "served APIs changed", "generation", now.Generation(),
		"added", shortened(append(names[snapshot.ChangeAdded], unreadSince(before, now)...)),
		"removed", shortened(append(names[snapshot.ChangeRemoved], unreadSince(now, before)...)),
		"changed", shortened(names[snapshot.ChangeChanged]))
}

// unreadSince lists the versions that now has and before has not, and whose kinds
// were never read.
func unreadSince(before, now *snapshot.Snapshot) (unread []string) {
	for _, g := range now.Groups() {
		for _, v := range g.Versions() {
			if v.Table == nil && !before.Serves(g.Name(), v.Name) {
				unread = append(unread, schema.GroupVersion{Group: g.Name(), Version: v.Name}.String())
			}
		}
	}
	return unread
}

func shortened(list []string) []string {
	if len(list) > mostLogged {
		list = append(list[:mostLogged], "and more")
	}
	return list
}

const mostLogged = 20

// tell writes a line to the log, and keeps it for the debug page. Only reports call it.
func (m *DynamicRESTMapper) tell(level int, msg string, keysAndValues ...any) {
	m.logger().V(level).Info(msg, keysAndValues...)
	m.remember(msg, keysAndValues)
}

// levelReads is the level of the lines about each read and each lookup that ended with NoMatch:
// debugging, in the words of klog. Programs that kubebuilder made show level 1.
const levelReads = 4

// logger returns the Logger of the options. In a fleet it names the cluster.
func (m *DynamicRESTMapper) logger() logr.Logger { return m.named(m.options.Logger) }

func (m *DynamicRESTMapper) named(logger logr.Logger) logr.Logger {
	if m.member == nil || m.member.name.Load() == nil {
		return logger
	}
	return logger.WithValues("cluster", *m.member.name.Load())
}
