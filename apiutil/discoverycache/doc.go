// SPDX-License-Identifier: Apache-2.0

// Package discoverycache keeps what client-go's discovery returns, and a RESTMapper keeps it fresh. Use it in the
// place of client-go's memory.NewMemCacheClient, for what a RESTMapper does not know: short names, categories and
// subresources, and for functions that take a discovery.CachedDiscoveryInterface, such as
// restmapper.NewDeferredDiscoveryRESTMapper and restmapper.NewShortcutExpander.
//
// You need not invalidate it. The cache is a view of what the mapper knows, so it is as fresh as lookups are, and an
// outage is never an empty API. Its reads are reads of the mapper; besides those below, ServerResourcesForGroupVersion
// reads a version that is not known, and Fresh the discovery document. Its states, of which failing goes before the
// others:
//
//	state    when                                                 what a use of the cache does
//	-----    ----                                                 ----------------------------
//	empty    nothing was read yet, or not since Invalidate        waits for the mapper to read the server, for
//	                                                              RequestTimeout at most
//	current  all of it was read or confirmed within MaxAge        returns it, and sends no request
//	stale    it is older, the mapper was reset, or has read       waits for the mapper to read what is missing,
//	         anything                                             often nothing; for about 10 seconds at most
//	failing  the server could not be read the last time           returns what is known together with the error,
//	                                                              and does not wait
//
// A cache is failing for 3 seconds at first, and for twice as long after each further failure, up to 30 seconds. This
// ends early when the mapper is reset or has read the server. The next use then tries again.
//
// A single version that does not answer, mostly that of an APIService, is no outage: it keeps its place and its last
// list, beside its error, and all else is current. A use waits for it for 3 seconds once, and not again before it has
// answered, unless the mapper is reset.
package discoverycache

// The files, each of which uses only those below it:
//
//	cache.go   the methods of discovery.CachedDiscoveryInterface
//	state.go   what a cache keeps, and its states
//	view.go    what a snapshot of the mapper looks like to client-go
