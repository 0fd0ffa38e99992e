// SPDX-License-Identifier: Apache-2.0

// Package discovery reads what an API server serves: everything at once (Document),
// or one group or version live (List, Version).
//
// Each call reads once and retries nothing. The client keeps only the last bulk document
// and its validators. It recognises the form of a document by the bytes received, not by
// the Content-Type. Anything but a complete discovery document of the kind asked for is
// an error. Only the API server's own 404 for a group or a version means that it is not
// served: gateways answer 404 with a page of HTML when they have lost their server.
package discovery
