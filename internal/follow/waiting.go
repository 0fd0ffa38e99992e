// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// waiting has the kinds that caches wait for: kinds that are not served, or may not be listed. The zero value is
// ready to use.
type waiting struct {
	mu      sync.Mutex
	reasons map[schema.GroupVersionKind]map[any]error // by kind and cache, why it waits
}

// SetWaiting notes why a cache waits for a kind, or with nil that it does not. It reports whether the log should say
// so: the cache did not wait before, or for another reason. A cache is any comparable value.
func (f *Followed) SetWaiting(cache any, gvk schema.GroupVersionKind, reason error) (changed bool) {
	caches, before := f.waiting.set(cache, gvk, reason)
	begins := before == nil && reason != nil
	ends := before != nil && reason == nil
	if (begins || ends) && f.ReportWaiting != nil {
		f.ReportWaiting(gvk, caches)
	}
	if reason == nil {
		return false
	}
	return begins || before.Error() != reason.Error()
}

// set sets the reason why a cache waits for a kind, or removes it. It returns how many caches
// wait for the kind now, and the reason before.
func (w *waiting) set(cache any, gvk schema.GroupVersionKind, reason error) (caches int, before error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before = w.reasons[gvk][cache]
	if reason == nil {
		delete(w.reasons[gvk], cache)
		if len(w.reasons[gvk]) == 0 {
			delete(w.reasons, gvk)
		}
		return len(w.reasons[gvk]), before
	}
	if w.reasons == nil {
		w.reasons = map[schema.GroupVersionKind]map[any]error{}
	}
	if w.reasons[gvk] == nil {
		w.reasons[gvk] = map[any]error{}
	}
	w.reasons[gvk][cache] = reason
	return len(w.reasons[gvk]), before
}

// Waiting returns the kinds that caches wait for, each with the reason of one of the caches.
func (f *Followed) Waiting() map[schema.GroupVersionKind]error {
	w := &f.waiting
	w.mu.Lock()
	defer w.mu.Unlock()
	one := map[schema.GroupVersionKind]error{}
	for gvk, reasons := range w.reasons {
		for _, reason := range reasons {
			one[gvk] = reason
		}
	}
	return one
}
