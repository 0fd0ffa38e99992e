// SPDX-License-Identifier: Apache-2.0

// Package apiutil has a RESTMapper that stays fresh: it maps a kind to the resource
// that serves it, as the API server serves it now. The project's DESIGN.md says
// what it promises, as rules F1 to F9.
//
// NewDynamicRESTMapper has the signature of controller-runtime's, and of
// MapperProvider in the options of its manager and cluster. It sends no request
// and starts no goroutine.
//
// A lookup that the mapper can answer from what it knows is a hit: it sends nothing and
// waits for nobody. Any other is a miss, and reads the server. The error is NoMatch
// (meta.IsNoMatchError) only if the server does not serve the kind. If that could not be
// found out, as in an outage, it is another error.
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
