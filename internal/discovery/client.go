// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/share"
)

// Options bound what one request may take. The zero value is not usable.
type Options struct {
	RequestTimeout   time.Duration // of one request
	MaxResponseBytes int64         // of one response, after decompression

	// SharedAs says whose requests these are where the transport does not; see share.ServerOf.
	SharedAs string

	// Requested, if not nil, is called after every request that was sent with its
	// path and the status of the answer, 0 if there was none.
	Requested func(path string, code int)
}

// Client reads the discovery documents of one server. Its methods may be called
// concurrently, but for Document: what one call finds is where the next begins.
type Client struct {
	rest    rest.Interface
	options Options
	secrets []string     // never to be seen in an error, besides what a request has sent
	server  share.Server // whose documents these are, to other mappers of this process
	last    *Bulk        // the last bulk document read; used by Document alone
}

// NewClient makes a client that sends its requests through httpClient, with the
// rate limiter and the other settings of cfg. It sends no request.
func NewClient(cfg *rest.Config, httpClient *http.Client, options Options) (*Client, error) {
	own := *httpClient
	own.Transport = &roundTripper{next: transportOf(httpClient), maxBytes: options.MaxResponseBytes, requested: options.Requested}
	own.CheckRedirect = sameHost(httpClient.CheckRedirect)
	// The discovery client's REST client has the settings that stock's has: rate
	// limits, timeout parameter, user agent.
	client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, &own)
	c := &Client{options: options, secrets: secretsOf(cfg), server: share.ServerOf(cfg, httpClient, options.SharedAs)}
	if err != nil {
		return nil, c.Safe(hostError(cfg.Host, err))
	}
	c.rest = client.RESTClient()
	return c, nil
}

func transportOf(c *http.Client) http.RoundTripper {
	if c.Transport == nil {
		return http.DefaultTransport
	}
	return c.Transport
}

// request is what one document is asked for with.
type request struct {
	path         string
	gv           schema.GroupVersion // for errors
	accept, etag string              // etag may be empty
}

// document is a response to a successful request.
type document struct {
	body        []byte
	etag        string
	notModified bool
	caller      share.Key // of the credentials that were sent
}

// get reads one document and decodes it. Its error is errNotServed for a 404 of
// the API server's own, else an *Error. It decodes here because what decode says may
// repeat the credentials that were sent, which are known until get returns.
func get[T any](ctx context.Context, c *Client, r request, decode func(document) (T, error)) (T, error) {
	var nothing T
	seen := &exchange{conditional: r.etag != ""}
	body, err := c.send(ctx, r, seen)
	if err != nil {
		return nothing, err
	}
	result, err := decode(document{body: body, etag: seen.etag, notModified: seen.notModified, caller: c.caller(seen)})
	if err != nil {
		return nothing, c.failure(r, http.StatusOK, err, seen.sent)
	}
	return result, nil
}

// caller tells callers apart by the credentials that they sent, unless it is the
// user's to say who a caller is. Tokens of files and plugins change.
func (c *Client) caller(seen *exchange) share.Key {
	if c.server.Named() {
		return share.Key{}
	}
	return share.KeyOf("Authorization", []byte(seen.authorization))
}

// send returns the body of a successful response.
func (c *Client) send(ctx context.Context, r request, seen *exchange) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	// No retries below us: client-go would sleep for a Retry-After, while others wait
	// for this read. Who asks again, and when, is for the callers to say.
	req := c.rest.Get().AbsPath(r.path).SetHeader("Accept", r.accept).MaxRetries(0)
	if r.etag != "" {
		req.SetHeader("If-None-Match", r.etag)
	}
	body, err := req.Do(withExchange(ctx, seen)).Raw()
	switch {
	case err == nil:
		return body, nil
	case seen.code == http.StatusNotFound && isAbsence(seen.notFound.String()):
		return nil, errNotServed
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		err = fmt.Errorf("no complete answer within %v (RequestTimeout): %w", c.options.RequestTimeout, context.DeadlineExceeded)
	default:
		err = c.cause(err, seen, body)
	}
	return nil, c.failure(r, seen.code, err, seen.sent)
}

// versionPath returns where the resources of a version are listed, and whether
// the names can be those of a group and a version at all.
func versionPath(gv schema.GroupVersion) (string, bool) {
	if gv.Group == "" {
		return "/api/" + gv.Version, segment(gv.Version)
	}
	return "/apis/" + gv.Group + "/" + gv.Version, segment(gv.Group) && segment(gv.Version)
}

// segment reports whether name stands for itself as one segment of a path.
func segment(name string) bool {
	return name != "" && name != "." && name != ".." && !strings.ContainsAny(name, "/?#%")
}

// pageNotFound is the text of the API server's 404 for a path that nobody serves
// (net/http.NotFound). A 404 of a handler of its own has a metav1.Status.
const pageNotFound = "404 page not found"

// isAbsence reports whether the body of a 404 is the API server's. Anything else
// is of a gateway or a proxy before it, which knows nothing of what it serves.
func isAbsence(body string) bool {
	if strings.TrimSpace(body) == pageNotFound {
		return true
	}
	status, ok := statusOf([]byte(body))
	return ok && (status.Code == 0 || status.Code == http.StatusNotFound)
}

// briefStatus is what is read of a metav1.Status. Long lists in it take no room.
type briefStatus struct {
	Kind, Message string
	Code          int
}

// statusOf reports whether body is a metav1.Status.
func statusOf(body []byte) (status briefStatus, ok bool) {
	err := json.Unmarshal(body, &status)
	return status, err == nil && status.Kind == "Status"
}
