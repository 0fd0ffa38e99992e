// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/share"
)

// ClientGo returns a discovery client of client-go's that sends its requests through c: with the timeout, the rate
// limit and the bounds of c, and its judgement of a 404. The document is not sent again while it is the same. Use it
// for what a snapshot does not keep: short names, categories and subresources. Its errors are *ReadErrors.
func (c *Client) ClientGo() (*discovery.DiscoveryClient, error) {
	// newRequest puts in the server's own host and path.
	cfg := &rest.Config{Host: "http://apiserver", QPS: -1}
	return discovery.NewDiscoveryClientForConfigAndClient(cfg, &http.Client{Transport: adapter{c}})
}

// ReadError is why a request of ClientGo had no answer. It does not wrap its cause: client-go would repeat the request
// ten times, a second apart, if that were a broken connection.
type ReadError struct{ Cause error }

func (e *ReadError) Error() string { return "the server could not be read" }

// CauseOf returns the cause of a ReadError in err, or err if there is none.
func CauseOf(err error) error {
	var read *ReadError
	if errors.As(err, &read) {
		return read.Cause
	}
	return err
}

// adapter is the transport of ClientGo.
type adapter struct{ c *Client }

// keptAnswer is the last answer at one of the two bulk paths, to ask with its ETag.
type keptAnswer struct {
	accept, contentType, etag string
	caller                    share.Key
	body                      []byte
}

// keptAnswers are those of both paths.
type keptAnswers struct {
	mu     sync.Mutex // held for short work in memory only
	byPath map[string]*keptAnswer
}

func (k *keptAnswers) get(path, accept string) *keptAnswer {
	k.mu.Lock()
	defer k.mu.Unlock()
	if last := k.byPath[path]; last != nil && last.accept == accept {
		return last
	}
	return &keptAnswer{}
}

func (k *keptAnswers) put(path string, answer *keptAnswer) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.byPath == nil {
		k.byPath = map[string]*keptAnswer{}
	}
	k.byPath[path] = answer
}

// RoundTrip sends a request through the Client. A 404 that is the server's own is an answer; all else that is no
// success is a *ReadError.
func (a adapter) RoundTrip(req *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(req.Context(), a.c.options.RequestTimeout)
	defer cancel()
	gv, _ := schema.ParseGroupVersion(versionOf(req.URL.Path))
	r := request{path: req.URL.Path, gv: gv, accept: req.Header.Get("Accept")}
	last := &keptAnswer{}
	if isBulk(r.path) {
		last = a.c.kept.get(r.path, r.accept)
	}
	r.etag = last.etag
	seen, err := a.c.send(ctx, r)
	if err == nil && seen.code == http.StatusNotModified {
		if seen.caller == last.caller && (seen.etag == "" || seen.etag == last.etag) {
			return answer(req, http.StatusOK, last.contentType, last.body), nil
		}
		r.etag = "" // it is about another document, see readHalf
		seen, err = a.c.send(ctx, r)
	}
	switch {
	case errors.Is(err, errNotServed):
		return answer(req, http.StatusNotFound, seen.contentType, seen.body), nil
	case err != nil:
		return nil, &ReadError{a.c.failure(r, seen, err)}
	}
	a.c.read.Store(true)
	if isBulk(r.path) && seen.etag != "" {
		a.c.kept.put(r.path, &keptAnswer{r.accept, seen.contentType, seen.etag, seen.caller, seen.body})
	}
	return answer(req, seen.code, seen.contentType, seen.body), nil
}

func isBulk(path string) bool { return path == corePath || path == namedPath }

// versionOf returns the group and version of a version's own path, or "".
func versionOf(path string) string {
	for _, prefix := range []string{corePath + "/", namedPath + "/"} {
		if len(path) > len(prefix) && path[:len(prefix)] == prefix {
			return path[len(prefix):]
		}
	}
	return ""
}

func answer(req *http.Request, code int, contentType string, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: http.StatusText(code), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {contentType}},
		Body:          io.NopCloser(bytes.NewReader(body)),
		ContentLength: int64(len(body)),
		Request:       req,
	}
}
