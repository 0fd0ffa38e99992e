// SPDX-License-Identifier: Apache-2.0

// Package apiutil has a RESTMapper that stays fresh: one that says of a kind
// which resource serves it, as the API server serves it now.
//
// NewDynamicRESTMapper has the signature of controller-runtime's, and of
// MapperProvider in the options of its manager and cluster. It sends no request
// and starts no goroutine. From then on:
//
//   - A lookup that the mapper can answer from what it knows costs no request, takes
//     no lock, and waits for nobody.
//   - A lookup that finds nothing reads the part of the server that it is about, and
//     says "no match" only after that read, which began after the lookup did.
//   - If the server can't be read the error is another one: meta.IsNoMatchError is
//     false for it. Kinds already known go on being served.
//   - After Reset every lookup is answered from a read that started after it.
//
// What keeps it fresh beside misses is in DynamicRESTMapperOptions; RefreshInterval
// and WatchAPIs work while Start runs, so add the mapper to the manager. What
// others keep for a kind they may keep for as long as Generation stands, or until
// Subscribe tells of a change. WaitForKinds and RunWhileServed are for programs whose
// kinds come late, or come and go. Status, Healthz and DebugHandler tell how it is.
//
// A program with many clusters has a mapper for each. A Fleet makes them, and runs each
// for as long as its cluster is there.
package apiutil
