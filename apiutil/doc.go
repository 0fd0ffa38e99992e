// SPDX-License-Identifier: Apache-2.0

// Package apiutil has a RESTMapper that notices when the served APIs change. To use it in a controller-runtime manager or
// cluster, name it in the options; no other option is needed:
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{MapperProvider: apiutil.NewDynamicRESTMapper})
//
// This makes lookups right. The manager's client and informers still keep the first path of each kind until restart; those
// of package fresh, and of the patched controller-runtime, do not.
//
// The mapper maps a kind to the resource that serves it, as the API server serves it now. The project's DESIGN.md says what
// it promises, as rules F1 to F9. Making one sends no request and starts no goroutine.
//
// A lookup that the mapper can answer from what it knows is a hit: it sends nothing and
// waits for nobody. Any other is a miss, and reads the server. The error is NoMatch
// (meta.IsNoMatchError) only if the server does not serve the kind. If that could not be
// found out, as in an outage, it is another error.
//
// DynamicRESTMapperOptions lists the ways to stay fresh. RefreshInterval and WatchAPIs
// work while Start runs, so add the mapper to the manager. If you keep something for a
// kind, keep it until Generation moves or Subscribe sends a change. Status, Healthz and
// DebugHandler show whether the mapper works, and what it knows.
//
// Packages below this one build on a mapper:
//
//   - served asks whether kinds are served, lists those that are, waits for them, and runs
//     something while they are;
//   - fleet has a mapper for each of many clusters, or for a client for each piece of work;
//   - discoverycache is a discovery cache in the place of client-go's, for verbs, short names,
//     categories and subresources.
//
// The files, each of which uses only those below it:
//
//	door.go                                     what internal packages know a mapper by
//	reset.go, start.go, subscribe.go, debug.go  what can be done with a mapper besides a lookup,
//	status.go                                   and how it does
//	      ↓
//	restmapper.go                               the mapper and its seven lookups
//	      ↓
//	follow.go                                   what clients and caches that follow it ask
//	options.go, metrics.go, defaults.go, errors.go
package apiutil
