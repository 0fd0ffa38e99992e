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
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Error is the error of a read of a discovery document. To the callers of this package it never means that an API is
// absent (what answers 404 is returned without an error): neither meta.IsNoMatchError nor apierrors.IsNotFound is
// true of it.
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
	// Interrupted reports whether the connection failed before there was a complete answer, and not because
	// the time of the request was over.
	Interrupted bool
	// Err is the cause. It has no URL, no address, no header and no response body in it.
	Err error
}

// Error names the path and, if there is one, the group-version. If the ServiceAccount may not read a discovery
// document, it names the ClusterRole that allows that.
func (e *Error) Error() string {
	what := e.Path
	if !e.GroupVersion.Empty() {
		what = strings.TrimSuffix(e.GroupVersion.String(), "/") + " at " + e.Path
	}
	text := fmt.Sprintf("%s of %s failed: %v", cmp.Or(e.Verb, "discovery"), what, e.Err)
	if e.Verb == "" && e.Code == http.StatusForbidden {
		text += " (the ClusterRole system:discovery allows it)"
	}
	return text
}

// Unwrap returns the cause: an *apierrors.StatusError if the server answered with a
// metav1.Status, else the error of the transport or the decoder.
func (e *Error) Unwrap() error { return e.Err }

// ErrNotSent is the cause if a request never left the program, because its own rate limiter
// did not let it. That says nothing about the server.
var ErrNotSent = errors.New("the request was not sent")

// Cause is context.Cause for an error that a lookup returns: a program's own cause must not look
// like an answer of the server.
func Cause(ctx context.Context) error {
	err := withoutURLs(context.Cause(ctx))
	var status apierrors.APIStatus
	if errors.As(err, &status) || meta.IsNoMatchError(err) {
		return errors.New(err.Error())
	}
	return err
}

// withoutURLs returns what the URL errors in err wrap. A transport may nest them.
func withoutURLs(err error) error {
	var withURL *url.Error
	for errors.As(err, &withURL) {
		err = withURL.Err
	}
	return err
}

// statusError makes an error from an answer that is no success and no 404.
func (c *Client) statusError(x *exchange) error {
	failed := apierrors.NewGenericServerResponse(x.code, "get", schema.GroupResource{}, "", "", x.retryAfter, false)
	failed.ErrStatus.Message = c.describe(x)
	if x.retryAfter > 0 {
		failed.ErrStatus.Message += fmt.Sprintf(" (it asks to come back after %d seconds)", x.retryAfter)
	}
	return failed
}

// describe says in words what an answer is that is no success. Of its body it keeps only the message of a
// metav1.Status.
func (c *Client) describe(x *exchange) string {
	text := fmt.Sprintf("the server answered %d %s", x.code, http.StatusText(x.code))
	status, ok := parseStatus(x.body)
	if !ok || status.Message == "" {
		return text
	}
	return c.redact(text+": "+c.redact(status.Message, x.credentials), x.credentials)
}

// Unanswered reports whether the read that ended with err was sent, and its time was over before
// there was a complete answer. A connection that is refused is an answer: it costs nobody time.
func Unanswered(err error) bool { return isTimeout(err) && !errors.Is(err, ErrNotSent) }

// isTimeout reports whether an error, or one that it wraps, is a timeout.
func isTimeout(err error) bool {
	var timeout interface{ Timeout() bool }
	return errors.As(err, &timeout) && timeout.Timeout()
}

// GivesNoAnswer reports whether err, with which a version's last read ended, is a timeout of that read or the mark of a
// version as stale in the document: nobody answers for the version.
func GivesNoAnswer(err error) bool { return Unanswered(err) || errors.Is(err, errMarkedStale) }

var errMarkedStale = errors.New("the server marks this version as stale: what serves it does not answer")

// serverFailed reports whether the server itself failed, and not only what it was asked for: the connection
// failed, however, before there was a complete answer, or the answer was 5xx or 429. A server that starts or is
// killed does so. That the time of a request is over is no such failure: one APIService may hang.
func serverFailed(err error) bool {
	var failed *Error
	if !errors.As(err, &failed) {
		return false
	}
	isBusy := failed.Code == http.StatusTooManyRequests
	return failed.Interrupted || isBusy || failed.Code >= http.StatusInternalServerError
}

// NotAwaited returns the error of a read whose answer a caller did not wait for.
func NotAwaited(read snapshot.Read, wait time.Duration) error {
	failed := versionError(read.Group, read.Version, 0, fmt.Errorf("no answer within %v", wait))
	if read.Part == snapshot.PartDocument {
		failed.Path = namedPath
	}
	return failed
}

// Undecided returns the error of a read that was answered with 404, where something else than the
// answer decides whether that is an absence. why says what that is.
func Undecided(read snapshot.Read, why error) error {
	err := fmt.Errorf("the answer was 404 Not Found, which does not show that it is not served: %w", why)
	return versionError(read.Group, read.Version, http.StatusNotFound, err)
}

// failure makes an Error from an error that may quote the server, or what was sent to it.
func (c *Client) failure(r request, x *exchange, err error) *Error {
	if !errors.Is(err, errNotServed) { // that has nothing of the server in it
		err = c.redactError(err, x.credentials)
	}
	failed := &Error{
		Verb:         r.verb,
		Path:         r.path,
		GroupVersion: r.gv,
		Code:         x.code,
		Interrupted:  x.interrupted,
		Err:          err,
	}
	if serverFailed(failed) {
		c.noteFailed()
	}
	return failed
}

// noteFailed reports that the server itself has failed.
func (c *Client) noteFailed() {
	if c.options.Failed != nil {
		c.options.Failed()
	}
}

// versionError makes an Error of a version, or of a group without one, that is not of its
// own request.
func versionError(group, version string, code int, err error) *Error {
	gv := schema.GroupVersion{Group: group, Version: version}
	path, _ := pathOf(gv)
	return &Error{Path: path, GroupVersion: gv, Code: code, Err: err}
}
