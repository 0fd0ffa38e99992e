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

// When a 404 is an absence (R6 in DESIGN.md). Mostly it is: the answer shows that it is the API
// server's. In three cases a document decides that is read after it, one for all that wait:
//
//   - The server has failed a moment ago. A kube-apiserver that starts answers 404 for its custom
//     resources for up to 100 ms, or longer on a busy machine: after it has read their
//     definitions, which ends the 503, and before it has made their documents.
//   - No answer of the server had an Audit-Id so far: a gateway may have answered that has lost it.
//   - The version is built in, and may be another API server's of the cluster (KEP-4020).

const (
	doubtFor   = 30 * time.Second // after the server failed, a 404 of something known is in doubt
	doubtAfter = time.Second      // after such a 404 the document is read that decides
)

// NoteFailure begins the doubt, or begins it anew: the server has failed, whatever it was asked for.
func (r *Reloader) NoteFailure() { r.failed.Store(&doubt{since: time.Now()}) }

// decide returns what a 404 for a version, or for the list of a group, has found: nothing, or an
// error if it is not believed. known reports whether something is known of what it is for, and
// proven whether the answer shows that it is the API server's.
func (r *Reloader) decide(f *flight, known, proven bool) snapshot.Found {
	failed := r.failed.Load()
	doubted := known && failed != nil && time.Since(failed.since) <= doubtFor
	_, listed := r.Snapshot().Document().Listed(f.read)
	peers := listed && r.Snapshot().Aggregated() && discovery.MayBeOfPeer(f.read.Group)
	if doubted && failed.document == nil {
		discovery.Sleep(f.ctx, doubtAfter)
		failed = r.failed.Load()
	}
	doubted = doubted && !failed.decides(f.read)
	if proven && !doubted && !peers {
		return snapshot.Found{}
	}
	if err := r.readOne(f.ctx, snapshot.Read{}, false); err != nil {
		return snapshot.Found{Err: discovery.Undecided(f.read, err)}
	}
	if doubted { // unless it has failed again
		r.failed.CompareAndSwap(failed, &doubt{failed.since, r.Snapshot().Document()})
	}
	version, listed := r.Snapshot().Document().Listed(f.read)
	switch {
	case !proven && r.client.SendsAuditIDs():
		return snapshot.Found{Err: discovery.Undecided(f.read, errNotAudited)}
	case listed && peers && version != nil:
		return snapshot.Found{Table: version.Table, Err: version.Err}
	case listed && doubted:
		return snapshot.Found{Err: discovery.Undecided(f.read, errStillListed)}
	}
	return snapshot.Found{}
}

// doubt is when the server last failed, and the document that was read after the first 404 since.
type doubt struct {
	since    time.Time
	document *snapshot.Document // nil: not yet
}

// decides reports whether the document does not list what a read is for: then a 404 is believed.
func (d *doubt) decides(read snapshot.Read) bool {
	if d.document == nil {
		return false
	}
	_, listed := d.document.Listed(read)
	return !listed
}

var (
	errNotAudited  = errors.New("other answers of the API server have an Audit-Id, and this one has none: a proxy or a gateway has answered")
	errStillListed = errors.New("the server has failed a moment ago, and lists it again by now")
)

// Absent reports whether two live reads of a version, a second apart, have found that it no longer has
// what still looks for. Ask that before you stop what depends on it, or drop its objects: one of several
// API servers may be behind for a moment. A read that fails is no absence.
func (r *Reloader) Absent(ctx context.Context, gv schema.GroupVersion, still func(*snapshot.Snapshot) bool) bool {
	for again := range 2 {
		if again > 0 {
			discovery.Sleep(ctx, doubtAfter)
		}
		if s, err := r.ReadLive(ctx, gv); err != nil || still(s) {
			return false
		}
	}
	return true
}
