// SPDX-License-Identifier: Apache-2.0

// Package share lets the mappers of one process keep one copy of equal data, and lets a
// new mapper begin with what the process already knows of a server.
//
// These rules make it safe among servers, and among callers of one server, that do
// not trust one another:
//
//   - The key of a group is a SHA-256 hash that is computed here over the bytes received.
//     What a server claims about its document, such as an ETag, is never a key. Equal
//     bytes decode to equal groups, so it does not matter who sent them first.
//   - The key of a bulk document with its ETags is the caller that the server sent it to.
//     The rest.Config identifies the caller if client-go made the transport from it
//     (own.go). Otherwise the user names the caller (SharedAs), or nothing is shared.
//   - The server has to confirm the document with a 304, for the same credentials that it
//     sent the document to: the credentials of files and plugins change.
//
// The package relies on two things: nobody changes an http.Transport in use, and the
// client certificates of one file, or of one plugin, belong to one user. client-go
// relies on them as well: it sends all their requests through the same connections.
//
// Documents are kept for a time after their last use (kept.go), within a bound, so that
// programs that make a client for each piece of work find their documents again. All
// other pointers are weak: a value goes once no mapper uses it. Go 1.23 has no weak
// pointers. There only bulk documents are shared, as long as they are kept.
//
// This package holds the only package-level state of the module. All of it is
// immutable once shared, except the registries. Each has a lock that is held for map
// operations only.
package share
