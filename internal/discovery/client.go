// SPDX-License-Identifier: Apache-2.0

// Package discovery reads what an API server serves: everything at once (Document), or one group or version live (List,
// Version).
//
// Each call reads once; only until one has succeeded do they obey Retry-After. The client keeps the last discovery
// document and its ETags, and nothing else. It recognizes the format of an answer by the bytes received, not by the
// Content-Type. Anything but a complete discovery document of the kind that was asked for is an error. Only the API
// server's own 404 for a group or a version means that it is not served: gateways and proxies answer 404, too, when
// they have lost their server.
//
// The files, from the question to the answer:
//
//	document.go, live.go, watch.go     what is asked for: the document, a group or a version, events
//	      ↓
//	client.go                          one request, with its timeout and its retries
//	      ↓
//	transport.go, absence.go           one exchange: its bytes, and whose answer a 404 is
//	redirect.go, guard.go              where a request may go, and how it ends if the transport does not
//	      ↓
//	decode.go, protobuf.go             from bytes to groups and tables; bounds.go says how many
//	resourcelists.go                   what is kept besides for a discovery cache
//	errors.go, redact.go, sanitize.go  an error for people, without credentials
package discovery

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Options bound what one request may take. The zero value is not usable.
type Options struct {
	RequestTimeout   time.Duration // of one request
	MaxResponseBytes int64         // of one response, after decompression

	// Requested, if not nil, is called after every request with its path and the status
	// of the answer, 0 if there was none.
	Requested func(path string, code int)

	// Failed, if not nil, is called when the server itself has failed, see serverFailed, whatever was asked for: a
	// discovery document or a watch. It must return soon.
	Failed func()
}

// Client reads the discovery documents of one server. Its methods may be called concurrently, except Document, because
// each call of it begins with what the last one found.
//
// It does not use client-go's REST client. That holds a body of any size, repeats requests while others wait for them,
// logs what a server sends, and hides the headers of an answer.
type Client struct {
	http    *http.Client
	base    *url.URL
	limiter flowcontrol.RateLimiter // nil: none
	options Options
	secrets []string // of the configuration; like the credentials that a request has sent, no error shows them

	lastAuditID atomic.Pointer[time.Time] // when the last document was read, if that had an Audit-Id; else nil
	hasRead     atomic.Bool               // something was read with success

	keepResourceLists atomic.Bool // see KeepResourceLists

	// Only Document uses these.
	core, named *groupList // what it has read last from /api and from /apis
	document    *snapshot.Document
	jsonOnly    bool // the server sends protobuf that is no aggregated document: it ignores what else is asked for
}

// NewClient makes a client that sends its requests through httpClient, to the host and with
// the rate limit of cfg. It sends no request.
func NewClient(cfg *rest.Config, httpClient *http.Client, options Options) (*Client, error) {
	base, _, err := rest.DefaultServerUrlFor(cfg)
	if err != nil { // not shown: it may quote a user and a password
		host, _, _ := strings.Cut(cfg.Host[strings.LastIndex(cfg.Host, "@")+1:], "?")
		return nil, fmt.Errorf("the host %q must be a URL or a host:port pair", host)
	}
	own := *httpClient
	own.CheckRedirect = sameHost(httpClient.CheckRedirect)
	return &Client{
		http:    &own,
		base:    base,
		limiter: limiterOf(cfg),
		options: options,
		secrets: secretsOf(cfg),
		core:    &groupList{},
		named:   &groupList{},
	}, nil
}

// defaultBurst is that of client-go's discovery client, which controller-runtime's own mapper uses.
const defaultBurst = 300

// limiterOf returns the rate limiter that client-go's discovery client would have, or nil.
func limiterOf(cfg *rest.Config) flowcontrol.RateLimiter {
	if cfg.RateLimiter != nil {
		return cfg.RateLimiter
	}
	qps := cmp.Or(cfg.QPS, rest.DefaultQPS)
	if qps <= 0 {
		return nil
	}
	return flowcontrol.NewTokenBucketRateLimiter(qps, cmp.Or(cfg.Burst, defaultBurst))
}

// request is a request for a discovery document, or for a list or a watch of objects.
type request struct {
	path   string
	params url.Values
	accept string
	etag   string // the server is to answer 304 if the document still has it; empty: none

	// For errors.
	verb string              // list or watch; empty for a discovery document
	gv   schema.GroupVersion // what the path is about
}

// get reads one document and decodes it. Its error is an *Error; it wraps errNotServed for a 404 that may be the API
// server's own, and errUnproven besides if a gateway may have sent it.
// get decodes the document itself because an error of decode may repeat the credentials that were sent, and only get
// knows them.
func get[T any](ctx context.Context, c *Client, r request, decode func(*exchange) (T, error)) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	x, err := c.sendWithRetries(ctx, r)
	if err == nil {
		result, err = decode(x)
	}
	if err != nil {
		return *new(T), c.failure(r, x, err)
	}
	return result, nil
}

// maxRetries is how often client-go sends a request again.
const maxRetries = 10

// sendWithRetries is send. It sends the request again after a failure that may be over soon, as client-go does (its
// with_retry.go and request.go in k8s.io/client-go/rest), but only until something was read with success: later a
// lookup has what is known, or its caller tries again.
func (c *Client) sendWithRetries(ctx context.Context, r request) (*exchange, error) {
	x, err := c.send(ctx, r)
	isDiscovery := r.verb == ""
	for retries := 0; err != nil && isDiscovery && retries < maxRetries; retries++ {
		if c.hasRead.Load() || !waitToRetry(ctx, x) {
			break
		}
		x, err = c.send(ctx, r)
	}
	return x, err
}

// waitToRetry reports whether to send a request again, after it has waited: for as long as a server asks for that is
// too busy, or a second if the connection was lost. It returns false if ctx would end before.
func waitToRetry(ctx context.Context, x *exchange) bool {
	seconds := 0
	switch {
	case x.retryable:
		seconds = 1
	case x.code == http.StatusTooManyRequests, x.code >= http.StatusInternalServerError:
		seconds = x.retryAfter
	}
	deadline, _ := ctx.Deadline()
	secondsLeft := (time.Until(deadline) - 1) / time.Second
	if seconds <= 0 || time.Duration(seconds) > secondsLeft {
		return false
	}
	Sleep(ctx, time.Duration(seconds)*time.Second)
	return ctx.Err() == nil
}

// send returns the answer to a request, and an error if it was not a success. A 304 is a success if the request had an
// ETag.
func (c *Client) send(ctx context.Context, r request) (*exchange, error) {
	x, err := guarded(ctx, func() (*exchange, error) { return c.sendOnce(ctx, r) })
	if x == nil { // the transport still goes on, or has panicked
		return &exchange{}, err
	}
	if err != nil {
		outOfTime := errors.Is(context.Cause(ctx), context.DeadlineExceeded)
		if outOfTime && !errors.Is(err, ErrNotSent) {
			err = fmt.Errorf("no complete answer within %v (RequestTimeout): %w",
				c.options.RequestTimeout, context.DeadlineExceeded)
		}
		return x, err
	}
	if x.success() {
		return x, nil
	}
	switch x.code {
	case http.StatusNotModified:
		if r.etag != "" {
			return x, nil
		}
		return x, errors.New("the server answered 304 Not Modified to a request without If-None-Match")
	case http.StatusNotFound:
		return x, c.notFound(x)
	}
	return x, c.statusError(x)
}

// pathOf returns the path of a version, or of the list of a group's versions. ok reports whether the names can be those
// of a group and a version. Nobody asks for a name that no server can have, so no error repeats the long name of a
// caller.
func pathOf(gv schema.GroupVersion) (path string, ok bool) {
	path, ok = corePath, true
	if gv.Group != "" {
		path, ok = namedPath+"/"+gv.Group, mayBeName(gv.Group)
	}
	if gv.Version != "" {
		path, ok = path+"/"+gv.Version, ok && mayBeName(gv.Version)
	}
	return path, ok
}

// mayBeName reports whether a server may have a group or a version of that name.
func mayBeName(name string) bool { return isPathSegment(name) && len(name) <= maxName }

// isPathSegment reports whether a name can be one segment of a path as it is.
func isPathSegment(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/?#%")
}
