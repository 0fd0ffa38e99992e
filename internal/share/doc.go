// SPDX-License-Identifier: Apache-2.0

// Package share lets the mappers of one process keep one copy of what is equal,
// and lets a new mapper begin with what the process already knows of a server.
//
// These rules make it safe among servers, and among callers of one server, that do
// not trust one another:
//
//   - Groups are found by a SHA-256 hash that is computed here over the bytes
//     received. What a server claims of its document, an ETag say, is never a key.
//     Equal bytes decode to equal groups, so whoever sent them first does not matter.
//   - A bulk document with its ETags is found by the caller of the server that it was
//     sent to. Who that is says the rest.Config, if the transport is client-go's own
//     for it (own.go), or else the user (SharedAs), or else nobody, and then
//     nothing is shared.
//   - The server has to confirm the document with a 304, and has to say that to the
//     very credentials which it sent the document to. Those of files and plugins change.
//
// Two things are taken for granted: that nobody changes an http.Transport which is
// in use, and that the client certificates of one file, or of one plugin, are one
// user's. client-go takes that for granted as well: it sends all their requests
// through the same connections.
//
// Documents are kept for a time after their last use (kept.go), within a bound:
// programs that make a client for each piece of work find theirs again. All else is
// weak, and gone once no mapper uses it. Go 1.23 has no weak pointers. There only
// bulk documents are shared, for as long as they are kept.
//
// This package holds the only package-level state of the module. Everything in it
// is immutable once shared, but for the registries, which have a lock each that
// is held for map operations only.
package share
