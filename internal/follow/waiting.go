// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"maps"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// waiting has the kinds that caches wait for: kinds that are not served, or may not be listed. The zero value is ready.
type waiting struct {
	mu    sync.Mutex
	kinds map[schema.GroupVersionKind]map[any]error // by kind and cache, why it waits
}

// SetWaiting notes why a cache waits for a kind, or with nil that it does not, and reports whether the log should say so:
// it did not wait, or for another reason. A cache is any comparable value.
func (f *Followed) SetWaiting(cache any, gvk schema.GroupVersionKind, reason error) (changed bool) {
	w := &f.waiting
	w.mu.Lock()
	before := w.kinds[gvk][cache]
	switch {
	case reason == nil:
		delete(w.kinds[gvk], cache)
	case w.kinds == nil:
		w.kinds = map[schema.GroupVersionKind]map[any]error{gvk: {cache: reason}}
	case w.kinds[gvk] == nil:
		w.kinds[gvk] = map[any]error{cache: reason}
	default:
		w.kinds[gvk][cache] = reason
	}
	caches := len(w.kinds[gvk])
	if caches == 0 {
		delete(w.kinds, gvk)
	}
	w.mu.Unlock()
	if (before == nil) != (reason == nil) && f.ReportWaiting != nil {
		f.ReportWaiting(gvk, caches)
	}
	return reason != nil && (before == nil || before.Error() != reason.Error())
}

// Waiting returns the kinds that caches wait for, each with the reason of one of the caches.
func (f *Followed) Waiting() map[schema.GroupVersionKind]error {
	w := &f.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	reasons := map[schema.GroupVersionKind]error{}
	for gvk, caches := range w.kinds {
		for reason := range maps.Values(caches) {
			reasons[gvk] = reason
		}
	}
	return reasons
}
