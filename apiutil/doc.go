// SPDX-License-Identifier: Apache-2.0

// Package apiutil has a RESTMapper that notices when the served APIs change. To use it in a controller-runtime
// manager or cluster, name it in the options; no other option is needed:
//
//	mgr, err := ctrl.NewManager(cfg, ctrl.Options{MapperProvider: apiutil.NewDynamicRESTMapper})
//
// This makes lookups right. The manager's client and informers still keep the first path of each kind until restart;
// those of package fresh, and of the patched controller-runtime, do not.
//
// # Lookups
//
// The mapper maps a kind to the resource that serves it, as the API server serves it now. Making one sends no request
// and starts no goroutine.
//
// A lookup that the mapper can answer from what it knows is a hit: it sends no request and waits for nobody. Any
// other is a miss, and reads the server. The error is NoMatch (meta.IsNoMatchError) only if the server does not serve
// the kind. If that could not be found out, as in an outage, it is another error.
//
// # Staying fresh
//
// DynamicRESTMapperOptions lists the ways. By default the mapper confirms what is in use every 30 seconds.
// RefreshInterval and WatchAPIs work while Start runs, so add the mapper to the manager:
//
//	err := mgr.Add(mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper))
//
// If your program keeps something that it has made for a kind, keep it until Generation changes or Subscribe sends a
// change. Status, Healthz and DebugHandler show what the mapper knows, and whether it can read the server.
//
// # Packages that build on a mapper
//
//   - served asks whether kinds are served, lists those that are, waits for them, and runs something while they are;
//   - fleet has a mapper for each of many clusters, or for each identity with which a program asks a cluster;
//   - discoverycache is a discovery cache in the place of client-go's, for short names, categories and subresources.
package apiutil

// The files, each of which uses only those below it:
//
//	register.go                                 how internal packages get at what is inside a mapper
//	reset.go, start.go, subscribe.go, debug.go  what can be done with a mapper besides a lookup,
//	status.go                                   and what it reports
//	      ↓
//	restmapper.go                               the mapper and its seven lookups
//	      ↓
//	options.go, metrics.go, defaults.go, errors.go
