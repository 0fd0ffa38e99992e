// SPDX-License-Identifier: Apache-2.0

// Package apiutil has a RESTMapper that stays fresh: it maps a kind to the resource
// that serves it, as the API server serves it now.
//
// NewDynamicRESTMapper has the signature of controller-runtime's, and of
// MapperProvider in the options of its manager and cluster. It sends no request
// and starts no goroutine. These are the promises of the mapper:
//
//   - A lookup that the mapper can answer from what it knows costs no request, takes
//     no lock, and waits for nobody.
//   - A lookup that finds nothing in memory reads the part of the server that may have
//     the answer. It returns "no match" only after that read, which began after the
//     lookup did.
//   - If the server can't be read, meta.IsNoMatchError is false for the error. Known
//     kinds are still served.
//   - After Reset every lookup is answered from a read that began after the reset.
//
// DynamicRESTMapperOptions lists the ways to stay fresh. RefreshInterval and WatchAPIs
// work while Start runs, so add the mapper to the manager. If you keep something for a
// kind, keep it until Generation moves or Subscribe sends a change. If your kinds come
// late, or come and go, use WaitForKinds and RunWhileServed. Status, Healthz and
// DebugHandler show whether the mapper works, and what it knows.
//
// A program with many clusters, or with a client for each piece of work, takes its mappers
// from a Fleet: one for each key, which runs as long as it is used or its cluster is there.
package apiutil
