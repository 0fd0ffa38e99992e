// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/tools/metrics"

	"github.com/freshmapper/freshmapper/internal/share"
)

// exchange is a request as it was sent, and the answer to it.
type exchange struct {
	code        int  // the HTTP status; 0: no answer
	interrupted bool // see Error.Interrupted
	retryable   bool // it met an error of the connection after which client-go sends a request again

	// Of the request, as it was sent: transports add credentials.
	credentials    []string  // in the forms in which a server may repeat them
	credentialsKey share.Key // see credentialsKeyOf

	// Of the answer.
	etag       string
	hasAuditID bool
	retryAfter int           // seconds; 0 if the server did not say
	body       []byte        // all of it, within the bound; nil if it broke off
	stream     io.ReadCloser // instead of body, if a watch succeeds: without a bound
}

func (x *exchange) success() bool { return x.code >= 200 && x.code <= 299 }

// newRequest makes the request that client-go's REST client would send.
func (c *Client) newRequest(ctx context.Context, r request) (*http.Request, error) {
	to := *c.base
	to.Path = path.Join("/", c.base.Path, r.path)
	to.RawPath = ""
	to.RawQuery = r.params.Encode()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, to.String(), nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Accept", r.accept)
	if r.etag != "" {
		req.Header.Set("If-None-Match", r.etag)
	}
	if user := c.base.User; user != nil { // net/http would set it only in a copy, and credentialsOf has to see it
		password, _ := user.Password()
		req.SetBasicAuth(user.Username(), password)
	}
	return req, nil
}

// sendOnce sends a request, and reads the answer. Its error is about the rate limiter, the transport or the body: an
// answer that is no success is no error here.
func (c *Client) sendOnce(ctx context.Context, r request) (*exchange, error) {
	x := &exchange{}
	if c.limiter != nil {
		if err := c.limiter.Wait(ctx); err != nil {
			return x, fmt.Errorf("%w: client rate limiter: %w", ErrNotSent, sanitize(err))
		}
	}
	req, err := c.newRequest(ctx, r)
	if err != nil {
		return x, sanitize(err)
	}
	sentAt := time.Now()
	timedOut := func() bool {
		return ctx.Err() != nil || c.http.Timeout > 0 && time.Since(sentAt) >= c.http.Timeout
	}
	resp, err := c.http.Do(req)
	c.noteSent(ctx, x, r, req, resp)
	if err != nil {
		x.interrupted = resp == nil && !timedOut()
		x.retryable = x.interrupted && isConnectionLost(err)
		return x, sanitize(err)
	}
	x.etag = strongETag(resp.Header)
	x.hasAuditID = resp.Header.Get(auditID) != ""
	x.retryAfter, _ = strconv.Atoi(resp.Header.Get("Retry-After"))
	if r.verb == "watch" && x.success() {
		if err := ctx.Err(); err != nil { // nobody waits for it any more
			resp.Body.Close()
			return x, err
		}
		x.stream = resp.Body
		return x, nil
	}
	defer resp.Body.Close()
	if hasBody := x.code >= 200 && x.code != http.StatusNotModified; !hasBody {
		return x, nil // the body of a 101 is the connection, which may stay open
	}
	x.body, err = c.readBody(resp)
	if err != nil {
		err = sanitize(err)
		x.interrupted = !errors.Is(err, errTooLarge) && !timedOut()
	}
	return x, err
}

// noteSent notes and reports that a request was sent. resp is nil if there was no answer. If a redirect is refused,
// there are an answer and an error.
func (c *Client) noteSent(ctx context.Context, x *exchange, r request, req *http.Request, resp *http.Response) {
	status := "<error>"
	if resp != nil {
		x.code = resp.StatusCode
		status = strconv.Itoa(x.code)
		if resp.Request != nil {
			req = resp.Request
		}
	}
	x.credentials = credentialsOf(req)
	x.credentialsKey = credentialsKeyOf(req)
	metrics.RequestResult.Increment(ctx, status, http.MethodGet, c.base.Host) // as client-go's REST client does
	if c.options.Requested != nil {
		c.options.Requested(r.path, x.code)
	}
}

// readBody reads a body within the bound.
func (c *Client) readBody(resp *http.Response) ([]byte, error) {
	capacity := min(max(resp.ContentLength, 0), 1<<20) // a length is only a claim
	buffer := bytes.NewBuffer(make([]byte, 0, capacity+bytes.MinRead))
	if _, err := buffer.ReadFrom(http.MaxBytesReader(nil, resp.Body, c.options.MaxResponseBytes)); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

// isConnectionLost reports whether client-go sends a request again that met this error.
func isConnectionLost(err error) bool {
	return utilnet.IsConnectionReset(err) || utilnet.IsProbableEOF(err) || utilnet.IsHTTP2ConnectionLost(err)
}

// credentialsKeyOf returns a key of the headers that say who sent a request. Transports add them, and may add others
// each time: tokens of files and plugins change. A client certificate is in no header: that of one file, or of one
// plugin, belongs to one user, as client-go assumes, too.
func credentialsKeyOf(sent *http.Request) share.Key {
	headers := maps.Clone(sent.Header)
	maps.DeleteFunc(headers, func(name string, _ []string) bool {
		return name != "Authorization" && !strings.HasPrefix(name, "Impersonate-")
	})
	var sorted bytes.Buffer
	_ = headers.Write(&sorted)
	return share.KeyOf("credentials", sorted.Bytes())
}

// strongETag returns the ETag in the form that the API server recognizes, or "". The server compares byte by byte and
// knows only strong ETags (apiserver pkg/endpoints/discovery/aggregated/etag.go), but a proxy that compresses makes
// them weak. A long one is dropped: it would be kept, and a server may refuse the request that sends it back.
func strongETag(header http.Header) string {
	etag := strings.TrimPrefix(header.Get("ETag"), "W/")
	quoted := len(etag) >= 2 && etag[0] == '"' && etag[len(etag)-1] == '"'
	if !quoted || len(etag) > maxETag {
		return ""
	}
	return etag
}
