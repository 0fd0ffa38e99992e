// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// DynamicRESTMapperMetrics counts what a mapper does. A hit calls none of its methods.
// They may be called from several goroutines at once. A lookup that misses waits for
// Miss, so Miss must return at once. Nobody waits for the other methods. They are called
// one after the other; if more than 1,024 calls wait, the oldest are dropped.
type DynamicRESTMapperMetrics interface {
	// Request is called after each request. path is what was requested: "document" (/api and
	// /apis, which list everything), "list" (of a group's versions) or "version" (the resources
	// of one). code is the HTTP status of the answer, 0 if there was none.
	Request(path string, code int)

	// Reload is called after each read, which may take several requests. part is what was
	// read: "document", "list" or "version", as for Request. err is nil if the read succeeded.
	Reload(part string, duration time.Duration, err error)

	// Miss is called for each lookup that the mapper could not answer from what it
	// knew. outcome is "found", "absent" or "failed".
	Miss(outcome string)

	// Served is called after each read, with what the mapper knows then. groups and kinds are
	// how many are served; a kind counts once for each version. lastSuccess is the time of the
	// last successful read, or the zero time.
	Served(generation uint64, groups, kinds int, lastSuccess time.Time)

	// Watching is called while Start runs with WatchAPIs: with false at first, then with true
	// when all watches have opened, and with false when one of them is lost.
	Watching(open bool)

	// Followed is called when a client or a cache of package fresh, or of the patched
	// controller-runtime, has switched to the new REST path of a kind. who is "client" or "cache".
	Followed(who string)

	// WaitingKinds is called when the number of caches that wait for a kind to be served has
	// changed. caches is 0 if none is waiting any more.
	WaitingKinds(gvk schema.GroupVersionKind, caches int)
}
