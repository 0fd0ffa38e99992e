// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"io"
	"net/http"
	"strings"
)

// WatchClient returns a client for watches of API changes. They are no discovery
// requests, but go to the same server, which is trusted as little: redirects to
// another host are not followed, and no answer is read at any length but the
// streams of watches, of which client-go bounds each event.
func WatchClient(httpClient *http.Client, maxBytes int64) *http.Client {
	own := *httpClient
	own.Transport = &watchRoundTripper{next: transportOf(httpClient), maxBytes: maxBytes}
	own.CheckRedirect = sameHost(httpClient.CheckRedirect)
	return &own
}

type watchRoundTripper struct {
	next     http.RoundTripper
	maxBytes int64
}

// RoundTrip implements http.RoundTripper.
func (rt *watchRoundTripper) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := rt.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	watching := req.URL.Query().Get("watch") == "true"
	switch {
	case resp.StatusCode != http.StatusOK:
		resp.Body = &redactedBody{ReadCloser: bounded(resp.Body, rt.maxBytes), sent: sentBy(resp, req)}
	case !watching:
		resp.Body = bounded(resp.Body, rt.maxBytes)
	}
	return resp, nil
}

// redactedBody is a refusal without the credentials that were sent. client-go
// makes an error of it, and from then on nobody knows what they were.
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

// WrappedRoundTripper lets client-go's helpers look through (k8s.io/apimachinery/pkg/util/net).
func (rt *watchRoundTripper) WrappedRoundTripper() http.RoundTripper { return rt.next }
