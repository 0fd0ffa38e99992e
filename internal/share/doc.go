// SPDX-License-Identifier: Apache-2.0

// Package share lets the mappers of one process keep one copy of what is equal,
// and lets a new mapper begin with what the process already knows of a server.
//
// Two rules make it safe among servers that do not trust one another:
//
//   - Groups are found by a SHA-256 hash that is computed here over the bytes
//     received. What a server claims of its document, an ETag say, is never a key.
//     Equal bytes decode to equal groups, so whoever sent them first does not matter.
//   - A bulk document with its ETags is found by the server it was read from, and
//     that means: the same address, TLS settings and credentials, through the same
//     transport, or the same client where somebody's own wrapper may lead requests
//     elsewhere. The server still has to confirm it with a 304.
//
// Nothing here keeps anything alive but, for a minute, the last few bulk
// documents: programs that make a client for each piece of work find theirs
// again. All else is weak, and gone once no mapper uses it.
//
// This package holds the only package-level state of the module. Everything in it
// is immutable once shared, but for the registries, which have a lock each that
// is held for map operations only.
package share
