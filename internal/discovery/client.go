// SPDX-License-Identifier: Apache-2.0

// Package discovery reads what an API server serves: everything at once (Document),
// or one group or version live (List, Version).
//
// Each call reads once; only until one has succeeded do they obey Retry-After. The client
// keeps only the last bulk document and its validators. It recognises the form of a document
// by the bytes received, not by the Content-Type. Anything but a complete discovery document of the kind asked for is
// an error. Only the API server's own 404 for a group or a version means that it is not
// served: gateways and proxies answer 404, too, when they have lost their server.
//
// The files, from the question to the answer:
//
//	bulk.go, live.go, watch.go     what is asked for: the document, a list or a version, events
//	      ↓
//	client.go                      one request, and what it may take
//	      ↓
//	transport.go, absence.go       one exchange: its bytes, and whose answer a 404 is
//	      ↓
//	decode.go, protobuf.go         from bytes to groups and tables; bounds.go says how many
//	errors.go, secrets.go          or an error for people, without credentials
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

	// Failed, if not nil, is called when the server itself has failed, see ServerFailed, whatever was asked for: a
	// discovery document, a watch, or what is read for a discovery client. It must return soon.
	Failed func()
}

// Client reads the discovery documents of one server. Its methods may be called
// concurrently, except Document, because each call of it begins with what the last one
// found.
//
// It does not use client-go's REST client. That holds a body of any size, repeats requests
// while others wait for them, logs what a server sends, and hides the headers of an answer.
type Client struct {
	http    *http.Client
	base    *url.URL
	limiter flowcontrol.RateLimiter // nil: none
	options Options
	secrets []string // never shown in an error, like the credentials that a request has sent

	audited atomic.Pointer[time.Time] // when a document was read that had an Audit-Id; nil if the last one had none
	read    atomic.Bool               // the document, or a list or a version, was read once

	keepLists atomic.Bool // see KeepResourceLists

	// Only Document uses these, which it has read last.
	core, named *half
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
	limiter := cfg.RateLimiter
	if qps := cmp.Or(cfg.QPS, rest.DefaultQPS); limiter == nil && qps > 0 {
		// Stock's mapper has this burst from client-go's discovery client.
		limiter = flowcontrol.NewTokenBucketRateLimiter(qps, cmp.Or(cfg.Burst, 300))
	}
	return &Client{
		http: &own, base: base, limiter: limiter, options: options, secrets: secretsOf(cfg), core: &half{}, named: &half{},
	}, nil
}

// request is a request for one document, or for one list or watch.
type request struct {
	verb, path   string              // verb is for errors, and so is
	gv           schema.GroupVersion // this
	accept, etag string              // etag may be empty
	params       url.Values
}

// get reads one document and decodes it. Its error is an *Error; it wraps errNotServed for
// the API server's own 404. get decodes the document itself because an error of decode may
// repeat the credentials that were sent, and only get knows them.
func get[T any](ctx context.Context, c *Client, r request, decode func(*exchange) (T, error)) (result T, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	seen, err := c.send(ctx, r)
	for tries := 0; err != nil && tries < mostRetries && r.verb == "" && c.awaitRetry(ctx, seen); tries++ {
		seen, err = c.send(ctx, r)
	}
	if err == nil {
		result, err = decode(seen)
	}
	if err != nil {
		return *new(T), c.failure(r, seen, err)
	}
	return result, nil
}

// mostRetries is how often client-go sends a request again.
const mostRetries = 10

// awaitRetry reports whether to send a request again, after it has waited: for as long as a server asks for that
// is too busy, or a second if the connection was reset or ended. It does so until something was read once, if ctx
// does not end before. Client-go does so always (k8s.io/client-go/rest, with_retry.go and request.go); later a
// lookup has what is known, or its caller comes back.
func (c *Client) awaitRetry(ctx context.Context, seen *exchange) bool {
	seconds := 0
	switch {
	case seen.mayRetry:
		seconds = 1
	case seen.code == http.StatusTooManyRequests, seen.code >= http.StatusInternalServerError:
		seconds = seen.retryAfter
	}
	deadline, _ := ctx.Deadline()
	if c.read.Load() || seconds <= 0 || time.Duration(seconds) > (time.Until(deadline)-1)/time.Second {
		return false
	}
	Sleep(ctx, time.Duration(seconds)*time.Second)
	return ctx.Err() == nil
}

// send returns the answer to a request, and an error if it was not a success.
func (c *Client) send(ctx context.Context, r request) (*exchange, error) {
	seen, err := Guarded(ctx, func() (*exchange, error) { return c.exchange(ctx, r) })
	switch {
	case seen == nil: // Guarded has given up
		return &exchange{}, err
	case err != nil && !errors.Is(err, ErrNotSent) && errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		return seen, fmt.Errorf("no complete answer within %v (RequestTimeout): %w", c.options.RequestTimeout, context.DeadlineExceeded)
	case err != nil:
		return seen, err
	case seen.success(), seen.code == http.StatusNotModified && r.etag != "":
		return seen, nil
	case seen.code == http.StatusNotModified:
		return seen, errors.New("the server answered 304 Not Modified to a request without If-None-Match")
	case seen.code == http.StatusNotFound:
		return seen, c.notFound(seen)
	}
	return seen, c.statusError(seen)
}

// pathOf returns the path of a version, or of the list of a group's versions. It also
// reports whether the names can be those of a group and a version. What no server can have nobody asks for, so
// that no error repeats the long name of a caller.
func pathOf(gv schema.GroupVersion) (path string, ok bool) {
	path, ok = namedPath+"/"+gv.Group, segment(gv.Group) && len(gv.Group) <= maxName
	if gv.Group == "" {
		path, ok = corePath, true
	}
	if gv.Version != "" {
		path, ok = path+"/"+gv.Version, ok && segment(gv.Version) && len(gv.Version) <= maxName
	}
	return path, ok
}

// segment reports whether name can be one segment of a path as it is.
func segment(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/?#%")
}
