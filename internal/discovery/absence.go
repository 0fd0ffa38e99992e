// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// Whose 404 it is (R6). A kube-apiserver since 1.21, and whatever else is built on k8s.io/apiserver, puts an Audit-Id
// on every answer, through kube-aggregator, too (k8s.io/apiserver/pkg/endpoints/filters/audit_init.go). The 404 of
// most gateways and proxies has none, and its text may be the very one of a kube-apiserver: that is net/http's own.
const auditID = "Audit-Id"

var (
	// errNotServed is the error for the API server's own 404.
	errNotServed = errors.New("the server answered 404 Not Found")
	// errUnproven is the error for a 404 without an Audit-Id, if no document has had one lately. It may be the API
	// server's, or that of a gateway.
	errUnproven = fmt.Errorf("%w without an Audit-Id", errNotServed)
)

// auditIDMaxAge is how long a document that had an Audit-Id shows that a 404 without one is not the API server's. A
// gateway may begin to remove the header: after that time a document that is read after the 404 decides.
const auditIDMaxAge = 30 * time.Second

// SendsAuditIDs reports whether the document that was read last had an Audit-Id, a short time ago. A 404 without
// one is then no answer of the API server. Other answers do not count: one of them may be of another program.
func (c *Client) SendsAuditIDs() bool {
	at := c.lastAuditID.Load()
	return at != nil && time.Since(*at) < auditIDMaxAge
}

// notFound returns what a 404 means: errNotServed, errUnproven, or an error that says why it is not the API server's.
//
//	the body                                        with an Audit-Id    without one
//	--------                                        ----------------    -----------
//	a metav1.Status that names an object            not the server's    not the server's
//	an index of paths                               not served          not the server's
//	anything else but a 404 of the API server       not the server's    not the server's
//	empty                                           not served          not the server's
//	a metav1.Status of a 404, "404 page not found"  not served          not the server's if SendsAuditIDs, else unproven
func (c *Client) notFound(x *exchange) error {
	status, isStatus := parseStatus(x.body)
	if isStatus && status.Details.Name != "" {
		return c.notFromServer(x, "it names an object, and not an API")
	}
	if x.hasAuditID && isPathIndex(x.body) {
		return errNotServed
	}
	text := string(bytes.TrimSpace(x.body))
	isOfA404 := text == "" || text == pageNotFound
	if isStatus {
		isOfA404 = status.Code == 0 || status.Code == http.StatusNotFound
	}
	if !isOfA404 {
		return c.notFromServer(x, "its body is not the API server's")
	}
	if x.hasAuditID {
		return errNotServed
	}
	if text == "" { // kube-aggregator's own 404 may be empty, but has an Audit-Id
		return c.notFromServer(x, "its body is not the API server's")
	}
	if c.SendsAuditIDs() {
		return c.notFromServer(x, "other answers of the API server have an "+auditID+", and this one has none")
	}
	return errUnproven
}

// isPathIndex reports whether body is an index of paths, with which a server that is only an extension server answers
// each path that it does not serve, /api included: k8s.io/apiserver with an empty delegate and EnableIndex
// (k8s.io/apiserver/pkg/server/routes/index.go).
func isPathIndex(body []byte) bool {
	var index struct{ Paths isList }
	return json.Unmarshal(body, &index) == nil && bool(index.Paths)
}

// isList is whether a JSON value is a list. A long one takes no memory.
type isList bool

func (l *isList) UnmarshalJSON(value []byte) error {
	*l = value[0] == '['
	return nil
}

// notFromServer returns the error for a 404 that is not the API server's. It is no StatusError: it must not look like
// the absence of an API.
func (c *Client) notFromServer(x *exchange, why string) error {
	return errors.New(c.describe(x) + ": a proxy or a gateway has answered, because " + why)
}

// pageNotFound is the text of the API server's 404 for a path that nothing serves
// (net/http.NotFound). From 1.38 on, and of most of its handlers before that, a 404 has a
// metav1.Status.
const pageNotFound = "404 page not found"

// briefStatus is what we read of a metav1.Status. Long lists in it take no memory.
type briefStatus struct {
	Kind, Message string
	Code          int
	Details       struct{ Name string }
}

// parseStatus reports whether body is a metav1.Status.
func parseStatus(body []byte) (status briefStatus, ok bool) {
	err := json.Unmarshal(body, &status)
	return status, err == nil && status.Kind == "Status"
}

// MayBeOfPeer reports whether another API server of the same cluster may serve versions of the group that this one does
// not serve. From 1.36 on (KEP-4020) the document lists these, of built-in groups alone. The name does not tell these
// from CRDs of the community, such as those of gateway.networking.k8s.io: of such a group a version that was removed is
// served until the document no longer lists it.
func MayBeOfPeer(group string) bool {
	return !strings.Contains(group, ".") || strings.HasSuffix(group, ".k8s.io")
}
