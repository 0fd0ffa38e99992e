// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Error is the error of a read of a discovery document. It never means that an API is
// absent: neither meta.IsNoMatchError nor apierrors.IsNotFound is true of it.
type Error struct {
	// Verb is what was tried: list or watch; empty for a read of a discovery document.
	Verb string
	// Path is the path of the request, without host and query.
	Path string
	// GroupVersion is what was read. Its Version is empty for the list of a group, and
	// both are empty for the document of all groups.
	GroupVersion schema.GroupVersion
	// Code is the HTTP status of the answer; 0 if there was none.
	Code int
	// Err is the cause. It has no URL, no header and no response body in it.
	Err error
}

// Error names the path, and the group-version where there is one.
func (e *Error) Error() string {
	if e.GroupVersion.Empty() {
		return fmt.Sprintf("%s of %s failed: %v", cmp.Or(e.Verb, "discovery"), e.Path, e.Err)
	}
	return fmt.Sprintf("discovery of %s at %s failed: %v", strings.TrimSuffix(e.GroupVersion.String(), "/"), e.Path, e.Err)
}

// Unwrap returns the cause: an *apierrors.StatusError if the server answered with a
// metav1.Status, else the error of the transport or the decoder.
func (e *Error) Unwrap() error { return e.Err }

// errNotServed is the error for the API server's own 404.
var errNotServed = errors.New("the server answered 404 Not Found")

// ErrNotSent is the cause if a request never left the program, because its own rate limiter
// did not let it. That says nothing about the server.
var ErrNotSent = errors.New("the request was not sent")

// Cause is context.Cause for an error that a lookup returns: a program's own cause must not look
// like an answer of the server.
func Cause(ctx context.Context) error { return cause(context.Cause(ctx)) }

// cause returns why a request got no complete answer. It drops the URL, which may hold
// credentials; Error has the path. An error of the program's own transport may be about
// something else: it must not look like an answer of this server.
func cause(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fmt.Errorf("the response is larger than the limit of %d bytes (MaxResponseBytes)", tooLarge.Limit)
	}
	for withURL := (*url.Error)(nil); errors.As(err, &withURL); { // a transport may nest them
		err = withURL.Err
	}
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || meta.IsNoMatchError(err) {
		return errors.New(err.Error())
	}
	return err
}

// statusError makes an error from an answer that is no success. Of its body it keeps only
// the message of a metav1.Status.
func (c *Client) statusError(seen *exchange) error {
	text := fmt.Sprintf("the server answered %d %s", seen.code, http.StatusText(seen.code))
	if said, ok := statusOf(seen.body); ok && said.Message != "" {
		text = c.redact(text+": "+c.redact(said.Message, seen.sent), seen.sent)
	}
	if seen.code == http.StatusNotFound {
		// Not a StatusError: this must not look like the absence of an API.
		return errors.New(text + " with a body that is not the API server's: a proxy or a gateway has answered")
	}
	failed := apierrors.NewGenericServerResponse(seen.code, "get", schema.GroupResource{}, "", "", seen.retryAfter, false)
	failed.ErrStatus.Message = text
	return failed
}

// failure makes an Error from an error that may quote the server, or what was sent to it.
func (c *Client) failure(r request, seen *exchange, err error) *Error {
	if !errors.Is(err, errNotServed) { // whose words are ours
		err = c.safe(err, seen.sent)
	}
	return &Error{Verb: r.verb, Path: r.path, GroupVersion: r.gv, Code: seen.code, Err: err}
}

// versionError makes an Error of a version, or of a group without one, that is not of its
// own request.
func versionError(group, version string, code int, err error) *Error {
	gv := schema.GroupVersion{Group: group, Version: version}
	path, _ := pathOf(gv)
	return &Error{Path: path, GroupVersion: gv, Code: code, Err: err}
}
