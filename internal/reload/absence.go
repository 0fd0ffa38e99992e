// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"context"
	"errors"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Whether a 404 is an absence (R6 in DESIGN.md). Mostly it is: the answer shows that it is the API server's own. In
// three cases it is unconfirmed, and a document that is read after it decides. All callers share that read.
//
//   - The server failed a moment ago. A kube-apiserver that starts answers 404 for its custom resources for up to
//     100 ms, or longer on a busy machine: after it has read their definitions, which ends the 503, and before it
//     has made their documents. So in a grace period after a failure a 404 alone is no absence.
//   - The 404 has no Audit-Id, and the last document had none either, or is older than 30 seconds: a gateway that has
//     lost its route may have sent the 404.
//   - The version is built in, and another API server of the cluster may serve it (KEP-4020).

const (
	// gracePeriod is how long after a failure of the server a 404 for something known is unconfirmed.
	gracePeriod = 30 * time.Second
	// confirmAfter is how long after such a 404 the document is read that decides.
	confirmAfter = time.Second
)

// serverFailure is the last failure of the server.
type serverFailure struct {
	at time.Time
	// document is the one that was read after the first 404 of the grace period; nil if there was none yet.
	document *snapshot.Document
}

// NoteFailure begins the grace period, or begins it anew: the server has failed, whatever it was asked for.
func (r *Reloader) NoteFailure() { r.lastFailure.Store(&serverFailure{at: time.Now()}) }

// notFound is an answer of 404, and the reasons why it is unconfirmed.
type notFound struct {
	read snapshot.Read
	// unaudited: it has no Audit-Id, and no document has had one lately, so a gateway may have sent it.
	unaudited bool
	// failure is the failure in whose grace period the answer came, or nil.
	failure *serverFailure
	// mayBePeers: the document lists what was asked for, and another API server may serve it.
	mayBePeers bool
}

// confirmed reports whether the answer shows by itself that nothing is served.
func (n notFound) confirmed() bool { return !n.unaudited && n.failure == nil && !n.mayBePeers }

// verdict is what an unconfirmed 404 means.
type verdict int

const (
	// absent: nothing is served at the path.
	absent verdict = iota
	// servedByPeer: another API server of the cluster serves the version, and the document has its resources.
	servedByPeer
	// sentByProxy: answers of the API server have an Audit-Id, and this one has none.
	sentByProxy
	// servedAgain: the server failed a moment ago, and lists the version by now. Soon its path will answer, too.
	servedAgain
)

// verdict decides by a document that was read after the answer. auditIDs reports whether that had an Audit-Id.
func (n notFound) verdict(document *snapshot.Document, auditIDs bool) verdict {
	version, listed := document.Listed(n.read)
	switch {
	case n.unaudited && auditIDs:
		return sentByProxy
	case !listed:
		return absent
	case n.mayBePeers && version != nil:
		return servedByPeer
	case n.failure != nil:
		return servedAgain
	default:
		return absent // the version's own path decides, and not a document that lists it (R1)
	}
}

// confirmAbsence returns what a 404 for a version, or for the list of a group, has found: nothing, what another API
// server serves, or an error if it is not believed. known reports whether something is known of what was asked for,
// and audited whether the answer shows that it is the API server's own.
func (r *Reloader) confirmAbsence(c *call, known, audited bool) snapshot.VersionResult {
	n := notFound{read: c.read, unaudited: !audited, mayBePeers: r.mayBePeers(c.read)}
	if known {
		n.failure = r.failureBefore(c.ctx, c.read)
	}
	if n.confirmed() {
		return snapshot.VersionResult{}
	}

	if err := r.newCaller(onlyNewCalls, waitUntilAnswered).readOne(c.ctx, snapshot.ReadDocument); err != nil {
		return snapshot.VersionResult{Err: discovery.Undecided(c.read, err)}
	}
	document := r.Snapshot().Document()
	if n.failure != nil {
		// The document decides later answers of this grace period, too. It does not if the server has failed again.
		r.lastFailure.CompareAndSwap(n.failure, &serverFailure{at: n.failure.at, document: document})
	}

	switch n.verdict(document, r.client.SendsAuditIDs()) {
	case sentByProxy:
		return snapshot.VersionResult{Err: discovery.Undecided(c.read, errNotAudited)}
	case servedAgain:
		return snapshot.VersionResult{Err: discovery.Undecided(c.read, errStillListed)}
	case servedByPeer:
		version, _ := document.Listed(c.read)
		return snapshot.VersionResult{Table: version.Table, Err: version.Err}
	default:
		return snapshot.VersionResult{}
	}
}

// mayBePeers reports whether the document lists what was asked for, and may list it for another API server.
func (r *Reloader) mayBePeers(read snapshot.Read) bool {
	now := r.Snapshot()
	_, listed := now.Document().Listed(read)
	return listed && now.Aggregated() && discovery.MayBeOfPeer(read.Group)
}

// failureBefore returns the failure in whose grace period a 404 has come for something known, or nil if there was
// none, or if a document that was read since does not list what was asked for either. The first such answer of a
// grace period waits a second: by then a server that starts has made its documents.
func (r *Reloader) failureBefore(ctx context.Context, read snapshot.Read) *serverFailure {
	failure := r.lastFailure.Load()
	if failure == nil || time.Since(failure.at) > gracePeriod {
		return nil
	}
	if failure.document == nil {
		discovery.Sleep(ctx, confirmAfter)
		failure = r.lastFailure.Load() // another caller may have read the document, or the server has failed again
	}
	if failure.document == nil {
		return failure
	}
	if _, listed := failure.document.Listed(read); listed {
		return failure
	}
	return nil
}

var (
	errNotAudited = errors.New("other answers of the API server have an Audit-Id, and this one has none: " +
		"a proxy or a gateway has answered")
	errStillListed = errors.New("the 404 came during an outage, and the discovery document has the version again")
)

// Absent reports whether two live reads of a version, a second apart, have found that it no longer has what still
// looks for. Callers ask that before they stop what depends on it, or drop its objects: one of several API servers may
// be behind for a moment. A read that fails is no absence.
func (r *Reloader) Absent(ctx context.Context, gv schema.GroupVersion, still func(*snapshot.Snapshot) bool) bool {
	for again := range 2 {
		if again > 0 {
			discovery.Sleep(ctx, confirmAfter)
		}
		if s, err := r.ReadLive(ctx, gv); err != nil || still(s) {
			return false
		}
	}
	return true
}
