// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/metrics"

	"github.com/freshmapper/freshmapper/internal/share"
)

// exchange is a request as it was sent, and the answer to it.
type exchange struct {
	code        int  // 0: no answer
	interrupted bool // see Error.Interrupted
	mayRetry    bool // client-go sends a request again that met this error
	etag        string
	audited     bool      // the answer has an Audit-Id
	retryAfter  int       // seconds; 0 if the server did not say
	sent        []string  // credentials, in the forms in which a server may repeat them
	caller      share.Key // see callerOf
	contentType string
	body        []byte        // all of it, within the bound; nil if it broke off
	stream      io.ReadCloser // instead of that, if a watch succeeds: without a bound
}

func (x *exchange) success() bool { return x.code >= 200 && x.code <= 299 }

func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	to := *c.base // as client-go's REST client does
	to.Path, to.RawPath, to.RawQuery = path.Join("/", c.base.Path, r.path), "", r.params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", r.accept)
	if r.etag != "" {
		req.Header.Set("If-None-Match", r.etag)
	}
	if user := c.base.User; user != nil { // net/http would do so in a copy
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	return req, nil
}

// exchange sends a request, once. Its error is about the rate limiter, the transport or
// the body: it does not judge the answer.
func (c *Client) exchange(ctx context.Context, r request) (*exchange, error) {
	seen := &exchange{}
	if c.limiter != nil {
		if err := c.limiter.Wait(ctx); err != nil {
			return seen, fmt.Errorf("%w: client rate limiter: %w", ErrNotSent, foreign(err))
		}
	}
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return seen, foreign(err)
	}
	sent := time.Now()
	overdue := func() bool {
		return ctx.Err() != nil || c.http.Timeout > 0 && time.Since(sent) >= c.http.Timeout
	}
	resp, err := c.http.Do(req)
	status := "<error>"
	if resp != nil { // if a redirect is refused there is an error, too
		seen.code = resp.StatusCode
		status = strconv.Itoa(seen.code)
		if resp.Request != nil {
			req = resp.Request // as it was sent: transports add credentials
		}
	}
	seen.sent, seen.caller = sentBy(req), callerOf(req)
	metrics.RequestResult.Increment(ctx, status, http.MethodGet, c.base.Host) // as client-go's REST client does
	if c.options.Requested != nil {
		c.options.Requested(r.path, seen.code)
	}
	if err != nil {
		seen.interrupted = resp == nil && !overdue()
		seen.mayRetry = seen.interrupted &&
			(utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err))
		return seen, foreign(err)
	}
	seen.etag = strongETag(resp.Header)
	seen.audited = resp.Header.Get(auditID) != ""
	seen.contentType = resp.Header.Get("Content-Type")
	seen.retryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	if r.verb == "watch" && seen.success() {
		if err := ctx.Err(); err != nil { // nobody waits for it any more
			resp.Body.Close()
			return seen, err
		}
		seen.stream = resp.Body
		return seen, nil
	}
	defer resp.Body.Close()
	// Others have no body. That of a 101 is the connection, which may stay open.
	if seen.code >= 200 && seen.code != http.StatusNotModified {
		room := min(max(resp.ContentLength, 0), 1<<20) // a length is only a claim
		all := bytes.NewBuffer(make([]byte, 0, room+bytes.MinRead))
		if _, err := all.ReadFrom(http.MaxBytesReader(nil, resp.Body, c.options.MaxResponseBytes)); err != nil {
			err = foreign(err)
			seen.interrupted = !errors.Is(err, errTooLarge) && !overdue()
			return seen, err
		}
		seen.body = all.Bytes()
	}
	if seen.success() && c.repeats(seen.body, req) {
		return seen, errors.New("the answer repeats the credentials of the request")
	}
	return seen, nil
}

// callerOf returns a key of the headers that say whose request it is, as it was sent.
// Transports add them, and may add others each time: tokens of files and plugins change. A
// client certificate is in no header: that of one file, or of one plugin, belongs to one
// user, as client-go assumes, too.
func callerOf(sent *http.Request) share.Key {
	headers := maps.Clone(sent.Header)
	maps.DeleteFunc(headers, func(name string, _ []string) bool {
		return name != "Authorization" && !strings.HasPrefix(name, "Impersonate-")
	})
	var sorted bytes.Buffer
	_ = headers.Write(&sorted)
	return share.KeyOf("caller", sorted.Bytes())
}

// strongETag returns the ETag in the form that the API server recognises, or "". The
// server compares byte by byte and knows only strong ETags (apiserver
// pkg/endpoints/discovery/aggregated/etag.go), but a proxy that compresses makes them
// weak. A long one is dropped: it would be kept, and a server may refuse the request that
// sends it back.
func strongETag(header http.Header) string {
	etag := strings.TrimPrefix(header.Get("ETag"), "W/")
	if len(etag) < 2 || len(etag) > maxETag || etag[0] != '"' || etag[len(etag)-1] != '"' {
		return ""
	}
	return etag
}

// sameHost refuses redirects to another host: client-go's transport adds the
// credentials to every request, redirected ones included.
func sameHost(next func(*http.Request, []*http.Request) error) func(*http.Request, []*http.Request) error {
	return func(req *http.Request, via []*http.Request) error {
		from, to := via[0].URL, req.URL
		if hostOf(to) != hostOf(from) || from.Scheme == "https" && to.Scheme != "https" {
			return errOtherHost
		}
		if next != nil {
			return next(req, via)
		}
		if len(via) >= maxRedirects {
			return errRedirects
		}
		return nil
	}
}

const maxRedirects = 10 // as net/http's default

var (
	errOtherHost = errors.New("the server redirects to another host, which is not followed")
	errRedirects = fmt.Errorf("stopped after %d redirects", maxRedirects)
)

// hostOf returns the host of a URL, with its port unless that is the default one. The case of a host means
// nothing.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" {
		port = ""
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}

// abandonAfter is how long after its context a request may take to end.
const abandonAfter = 500 * time.Millisecond

// Guarded calls send, which runs code of the user: transports, and a rate limiter. Reads
// are made on goroutines of the mapper, where no caller can recover from a panic, as
// controller-runtime does around a reconciler. So Guarded returns an error if send panics
// or ends its goroutine. A panic is logged with its stack.
//
// It does not wait much longer than until ctx ends. If send goes on after that, the value is
// the zero value, and the caller must not use what send uses.
func Guarded[T any](ctx context.Context, send func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		o := outcome{err: errors.New("the HTTP transport has ended its goroutine")} // as the FailNow of a test does
		defer func() {
			if p := recover(); p != nil {
				o.err = errors.New("the HTTP transport panicked: " + knownWords(fmt.Sprint(p)))
				for _, handle := range utilruntime.PanicHandlers {
					handle(ctx, p)
				}
			}
			ended <- o
		}()
		o.value, o.err = send()
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-ended:
		return o.value, o.err
	case <-time.After(abandonAfter):
		return *new(T), errors.New("the HTTP transport does not stop when the request is cancelled")
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
