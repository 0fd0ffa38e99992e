// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
)

// WatchClient lists and watches resources to notice that one of their objects came,
// changed or went. It keeps no object. Its methods may be called concurrently.
//
// It sends requests through client-go's REST client, to use the rate limiter and the
// other settings of the configuration. It reads the bodies itself, because client-go
// decodes whole objects, and its informers keep them.
type WatchClient struct {
	rest    rest.Interface
	options Options
	safe    func(error) error // returns what may be shown of an error
}

// WatchClient returns a client for watches on the same server, which it does not trust
// either. Watches are no discovery requests: Options.Requested is not called for them.
// The Timeout of cfg does not apply, because it would end them.
func (c *Client) WatchClient(cfg *rest.Config, httpClient *http.Client) (*WatchClient, error) {
	own := *httpClient
	own.Transport = &refusalRoundTripper{next: transportOf(httpClient), maxBytes: min(c.options.MaxResponseBytes, maxItem)}
	own.CheckRedirect = sameHost(httpClient.CheckRedirect)
	own.Timeout = 0
	client, err := discovery.NewDiscoveryClientForConfigAndClient(cfg, &own)
	if err != nil {
		return nil, c.Safe(hostError(cfg.Host, err))
	}
	return &WatchClient{rest: client.RESTClient(), options: c.options, safe: c.Safe}, nil
}

// WatchError is the error of a list or a watch of a resource.
type WatchError struct {
	Verb string // list or watch
	Path string // without host and query
	// Code is the HTTP status of the answer, or the code of an error event; 0 if there was none.
	Code int
	Err  error // the cause, without credentials
}

// Error names the verb and the path.
func (e *WatchError) Error() string { return fmt.Sprintf("%s of %s failed: %v", e.Verb, e.Path, e.Err) }

// Unwrap returns the cause.
func (e *WatchError) Unwrap() error { return e.Err }

// List returns the resource version from which a watch misses nothing that happens from
// now on. It asks for a single object, because it only needs the version of the list.
// Its error is a *WatchError.
func (c *WatchClient) List(ctx context.Context, resource schema.GroupVersionResource) (resourceVersion string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	version, err := guarded(ctx, func() (string, error) { return c.list(ctx, resource) })
	if err != nil {
		return "", c.failure("list", resource, err)
	}
	return version, nil
}

func (c *WatchClient) list(ctx context.Context, resource schema.GroupVersionResource) (resourceVersion string, err error) {
	body, err := c.get(resource, "PartialObjectMetadataList").Param("limit", "1").Stream(ctx)
	if err != nil {
		return "", err
	}
	defer body.Close()
	resourceVersion, err = listVersion(bounded(body, c.options.MaxResponseBytes))
	if err != nil {
		return "", err
	}
	// Read the rest, which is short in an honest answer, to keep the connection.
	_, _ = io.CopyN(io.Discard, body, maxRest)
	return resourceVersion, nil
}

// Watch opens a stream of the events after resourceVersion. The stream ends when it is
// closed, when ctx ends, or after about lasting: a server that has not ended it by then
// is dead. The caller must close it. The error is a *WatchError.
func (c *WatchClient) Watch(
	ctx context.Context, resource schema.GroupVersionResource, resourceVersion string, lasting time.Duration,
) (*EventStream, error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+watchMargin)
	silent := time.AfterFunc(c.options.RequestTimeout, cancel) // which also closes the body
	req := c.get(resource, "PartialObjectMetadata").
		Param("watch", "true").
		Param("resourceVersion", resourceVersion).
		Param("allowWatchBookmarks", "true").
		Param("timeoutSeconds", strconv.Itoa(int(lasting.Seconds())))
	body, err := guarded(ctx, func() (io.ReadCloser, error) { return opened(ctx, req) })
	if !silent.Stop() {
		err = fmt.Errorf("no answer within %v (RequestTimeout)", c.options.RequestTimeout)
	}
	if err != nil {
		cancel()
		return nil, c.failure("watch", resource, err)
	}
	failure := func(err error) error { return c.failure("watch", resource, err) }
	return newEventStream(ctx, cancel, body, min(c.options.MaxResponseBytes, maxItem), failure), nil
}

// opened returns the body of the answer to req. It closes a body that comes when ctx has
// ended, because nobody may wait for it any more.
func opened(ctx context.Context, req *rest.Request) (io.ReadCloser, error) {
	body, err := req.Stream(ctx)
	if err == nil && ctx.Err() != nil {
		body.Close()
		return nil, ctx.Err()
	}
	return body, err
}

// get returns a request for metadata, or for whole objects if the server can't send
// metadata alone. client-go does not repeat the request, because the watcher has its own
// backoff.
func (c *WatchClient) get(resource schema.GroupVersionResource, as string) *rest.Request {
	accept := "application/json;as=" + as + ";g=meta.k8s.io;v=v1,application/json"
	return c.rest.Get().AbsPath(watchPath(resource)).SetHeader("Accept", accept).MaxRetries(0)
}

func watchPath(resource schema.GroupVersionResource) string {
	return "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource
}

func (c *WatchClient) failure(verb string, resource schema.GroupVersionResource, err error) error {
	e := &WatchError{Verb: verb, Path: watchPath(resource), Err: c.safe(withoutURL(err))}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		e.Code = int(status.Status().Code)
	}
	if e.Err.Error() == "" { // a metav1.Status need not say anything
		e.Err = fmt.Errorf("the server answered %d %s", e.Code, http.StatusText(e.Code))
	}
	return e
}

// refusalRoundTripper bounds the answers that client-go turns into errors, and removes
// the credentials that were sent, because nobody knows these later.
type refusalRoundTripper struct {
	next     http.RoundTripper
	maxBytes int64
}

// RoundTrip implements http.RoundTripper.
func (rt *refusalRoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := roundTrip(rt.next, req)
	if err == nil && resp.StatusCode != http.StatusOK {
		resp.Body = &redactedBody{ReadCloser: bounded(resp.Body, rt.maxBytes), sent: sentBy(resp, req)}
	}
	return resp, err
}

// WrappedRoundTripper lets client-go's helpers look through (k8s.io/apimachinery/pkg/util/net).
func (rt *refusalRoundTripper) WrappedRoundTripper() http.RoundTripper { return rt.next }

// redactedBody is the body of a refusal without the credentials that were sent.
type redactedBody struct {
	io.ReadCloser
	sent []string
	text *strings.Reader // nil until all has been read
}

// Read implements io.Reader.
func (b *redactedBody) Read(p []byte) (int, error) {
	if b.text == nil {
		text, err := io.ReadAll(b.ReadCloser)
		if err != nil {
			return 0, err
		}
		b.text = strings.NewReader(withoutAny(string(text), b.sent))
	}
	return b.text.Read(p)
}
