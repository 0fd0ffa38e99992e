// SPDX-License-Identifier: Apache-2.0

// Package discovery reads what an API server serves: everything at once (Bulk),
// or one group or version live (Group, Version).
//
// Each call reads once. Nothing is retried but what client-go's REST client
// retries by itself (429 and 5xx answers with Retry-After), nothing is kept but
// the last bulk document and its validators, and nothing is believed but the
// bytes received: their form is recognised by what they hold, not by the
// Content-Type above them. What is not a discovery document, whole and of the
// kind asked for, is an error. Only a 404 for a group or a version says that it
// is not served, and not even that if it comes with a page of HTML: gateways
// answer so when they have lost their server.
package discovery
