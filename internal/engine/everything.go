// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Everything is all that a server serves, as far as it could be read.
type Everything struct {
	Snapshot *snapshot.Snapshot
	Failed   map[schema.GroupVersion]error // versions that could not be read, or not yet

	// Err is why the server could not be read: there may be APIs that the snapshot does not have.
	Err error
	// NotConfirmed is why what is known could not be confirmed, although that was last done more than MaxAge ago.
	NotConfirmed error
}

// ReadAll returns everything. It is as fresh as a lookup: it sends no request if everything was read or confirmed
// within MaxAge. Otherwise it reads the server first, until ctx ends, and for about 10 seconds at most if something
// is known.
func (e *Engine) ReadAll(ctx context.Context) Everything {
	all := Everything{}
	began := time.Now()
	wasRead := e.Reloader.Snapshot().HasDocument()
	if wasRead {
		all.NotConfirmed = e.Reloader.ConfirmAll(ctx)
	}
	// A lookup that names no group, and wants every match, is current only if every group is. It looks for something
	// that is known, so that it does not wait for versions that do not answer.
	known := "pods"
	e.Reloader.Snapshot().KindsWhere(func(r *snapshot.Resource) bool {
		known = r.Name
		return false
	})
	q := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: known})
	q.All = true
	found := e.Reloader.Lookup(ctx, q)
	e.NoteUse()
	all.Err = found.Err
	if !wasRead && found.Err == nil {
		e.Reloader.NoteAllRead(began)
	}
	all.Snapshot = found.Snapshot // the present one may list a version since then that was not read
	all.Failed = FailedVersions(all.Snapshot)
	for _, waiting := range []map[schema.GroupVersion]error{found.Failed, e.Reloader.NotAnswering()} {
		for gv, err := range waiting {
			if all.Failed[gv] == nil {
				all.Failed[gv] = err
			}
		}
	}
	return all
}

// FailedVersions returns the versions whose last read failed, with the errors.
func FailedVersions(s *snapshot.Snapshot) map[schema.GroupVersion]error {
	failed := map[schema.GroupVersion]error{}
	for _, g := range s.Groups() {
		for _, v := range g.Versions() {
			if v.Err != nil {
				failed[schema.GroupVersion{Group: g.Name(), Version: v.Name}] = v.Err
			}
		}
	}
	return failed
}
