// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

const (
	// maxObject bounds an event, and a list of one object: each is held in memory as a
	// whole. etcd takes no object of more than 1.5 MiB.
	maxObject = 2 << 20
	// mostListed is how many elements a list of one object may have, its metadata included.
	mostListed = 1 << 12
	// maxVersion bounds a resource version, which is all that is kept of an object.
	maxVersion = 256
	// watchMargin is how much longer than asked a watch may last.
	watchMargin = 30 * time.Second

	// perSecond is how many bytes of events are read a second: a server that never stops
	// sending must not keep a processor busy.
	perSecond = 4 << 20
)

// WatchClient lists and watches resources through client-go's metadata client, to notice
// that one of their objects came, changed or went. It keeps no object, and does not trust
// the server. Its methods may be called concurrently.
type WatchClient struct {
	client  metadata.Interface
	options Options
	safe    func(error) error // returns what may be shown of an error
}

// WatchClient returns a client for watches on the same server. Watches are no discovery
// requests: Options.Requested is not called for them. The Timeout of cfg does not apply,
// because it would end them.
func (c *Client) WatchClient(cfg *rest.Config, httpClient *http.Client) (*WatchClient, error) {
	own := *httpClient
	own.Transport = &watchTransport{next: transportOf(httpClient), maxBytes: min(c.options.MaxResponseBytes, maxObject)}
	own.CheckRedirect = sameHost(httpClient.CheckRedirect)
	own.Timeout = 0
	client, err := metadata.NewForConfigAndClient(withoutWarnings(cfg), &own)
	if err != nil {
		return nil, c.Safe(hostError(cfg.Host, err))
	}
	return &WatchClient{client: client, options: c.options, safe: c.Safe}, nil
}

// failure names the verb and the path. What it wraps may be an apierrors.APIStatus.
func (c *WatchClient) failure(verb string, resource schema.GroupVersionResource, err error) error {
	if err = c.safe(withoutURL(err)); err.Error() == "" { // a metav1.Status need not say anything
		err = errors.New("the server does not say why")
	}
	return fmt.Errorf("%s of /apis/%s/%s/%s failed: %w", verb, resource.Group, resource.Version, resource.Resource, err)
}

// List returns the resource version from which a watch misses nothing that happens from
// now on. It asks for a single object, because it only needs the version of the list.
func (c *WatchClient) List(ctx context.Context, resource schema.GroupVersionResource) (resourceVersion string, err error) {
	ctx, cancel := context.WithTimeout(ctx, c.options.RequestTimeout)
	defer cancel()
	once := &attempt{cancel: cancel}
	list, err := guarded(ctx, func() (*metav1.PartialObjectMetadataList, error) {
		list, err := c.client.Resource(resource).List(once.in(ctx), metav1.ListOptions{Limit: 1})
		return list, cmp.Or(once.err, err)
	})
	if err == nil {
		err = checkVersion(list.ResourceVersion)
	}
	if err != nil {
		return "", c.failure("list", resource, err)
	}
	return list.ResourceVersion, nil
}

func checkVersion(resourceVersion string) error {
	switch {
	case resourceVersion == "" || resourceVersion == "0":
		return errors.New("the server sent no resourceVersion")
	case len(resourceVersion) > maxVersion:
		return fmt.Errorf("the resourceVersion has more than %d bytes", maxVersion)
	}
	return nil
}

// Watch opens a watch of the events after resourceVersion. It ends when it is stopped,
// when ctx ends, or after about lasting: a server that has not ended it by then is dead.
// event is called for each change, before the change is sent. If the server sends an
// error, or something that is no event, event is called with the reason, and the watch
// ends.
func (c *WatchClient) Watch(
	ctx context.Context, resource schema.GroupVersionResource, resourceVersion string, lasting time.Duration, event func(error),
) (*Watch, error) {
	ctx, cancel := context.WithTimeout(ctx, lasting+watchMargin)
	w := &Watch{ctx: ctx, cancel: cancel, events: make(chan watch.Event), ended: make(chan struct{})}
	w.attempt = attempt{cancel: cancel, watching: true}
	w.tell = func(err error) {
		if err != nil {
			err = c.failure("watch", resource, err)
		}
		event(err)
	}
	seconds := int64(lasting.Seconds())
	options := metav1.ListOptions{ResourceVersion: resourceVersion, AllowWatchBookmarks: true, TimeoutSeconds: &seconds}
	silent := time.AfterFunc(c.options.RequestTimeout, cancel) // which also closes the body
	var err error
	w.source, err = guarded(ctx, func() (watch.Interface, error) {
		source, err := c.client.Resource(resource).Watch(w.attempt.in(ctx), options)
		if err == nil && ctx.Err() != nil { // nobody may wait for it any more
			source.Stop()
			err = ctx.Err()
		}
		return source, cmp.Or(w.attempt.err, err)
	})
	if !silent.Stop() {
		err = fmt.Errorf("no answer within %v (RequestTimeout)", c.options.RequestTimeout)
	}
	if err != nil {
		cancel()
		return nil, c.failure("watch", resource, err)
	}
	return w, nil
}

// Watch is an open watch. It is a filter that ends when it is stopped, even while an event
// waits, or the source does not end.
type Watch struct {
	ctx     context.Context // of the request
	cancel  context.CancelFunc
	source  watch.Interface
	tell    func(error)
	attempt attempt
	start   sync.Once
	events  chan watch.Event
	ended   chan struct{} // closed when forward has returned
}

// ResultChan implements watch.Interface. No event is read before the first call.
func (w *Watch) ResultChan() <-chan watch.Event {
	w.start.Do(func() { go w.forward() })
	return w.events
}

// Ended is closed when the watch has ended.
func (w *Watch) Ended() <-chan struct{} { return w.ended }

// Stop implements watch.Interface. It waits for the goroutines of the watch, but not much
// longer than for those of a transport that stops when it is told to.
func (w *Watch) Stop() {
	w.cancel()
	w.ResultChan()
	_, _ = guarded(w.ctx, func() (struct{}, error) {
		w.source.Stop()
		for range w.source.ResultChan() { // until its goroutine has ended
		}
		return struct{}{}, nil
	})
	<-w.ended
}

func (w *Watch) forward() {
	defer close(w.ended)
	defer close(w.events)
	for {
		var event watch.Event
		var ok bool
		select {
		case event, ok = <-w.source.ResultChan():
		case <-w.ctx.Done():
		}
		if !ok || w.ctx.Err() != nil {
			return
		}
		read := w.attempt.reset()
		short, err := w.brief(event)
		if err != nil || event.Type != watch.Bookmark {
			w.tell(err)
		}
		if err != nil {
			return
		}
		select {
		case w.events <- watch.Event{Type: event.Type, Object: short}:
		case <-w.ctx.Done():
			return
		}
		select {
		case <-time.After(time.Duration(read) * time.Second / perSecond):
		case <-w.ctx.Done():
			return
		}
	}
}

// brief returns the object of an event with nothing but its resourceVersion, or the error
// that the event stands for. The text of that is ours, because the server's may be long
// and may repeat what was sent.
func (w *Watch) brief(event watch.Event) (*metav1.PartialObjectMetadata, error) {
	if object, ok := event.Object.(*metav1.PartialObjectMetadata); ok {
		short := &metav1.PartialObjectMetadata{}
		short.ResourceVersion = object.ResourceVersion
		return short, checkVersion(object.ResourceVersion)
	}
	status, ok := event.Object.(*metav1.Status)
	switch {
	case w.attempt.exceeded.Load():
		return nil, fmt.Errorf("the server sent more than %d bytes for one object", w.attempt.max)
	case !ok || apierrors.IsUnexpectedServerError(apierrors.FromObject(status)): // client-go found no event
		return nil, errNoEvent
	}
	return nil, &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: status.Code,
		Message: fmt.Sprintf("the server ended the watch with error %d %s", status.Code, http.StatusText(int(status.Code))),
	}}
}

var errNoEvent = errors.New("the server sent something that is not a watch event")

// watchTransport bounds the answers to lists and watches. It also removes the credentials
// that were sent from what client-go may quote, because nobody knows these later.
type watchTransport struct {
	next     http.RoundTripper
	maxBytes int64
}

// RoundTrip implements http.RoundTripper.
func (rt *watchTransport) RoundTrip(req *http.Request) (*http.Response, error) {
	a, ok := req.Context().Value(attemptKey{}).(*attempt)
	if !ok {
		return nil, errors.New("this transport is only for lists and watches")
	}
	req = req.Clone(req.Context())
	req.Header.Set("Accept", a.accept())
	resp, err := roundTrip(rt.next, req)
	if err == nil && (resp.StatusCode != http.StatusOK || !a.watching) {
		err = rt.readAll(resp, req)
	}
	if err != nil {
		a.err = err
		a.cancel()
		return nil, err
	}
	resp.Header.Del("Retry-After") // client-go would obey it inside a request, ten times
	if resp.StatusCode == http.StatusOK && a.watching {
		a.max = rt.maxBytes
		a.left.Store(a.max)
		resp.Body = &allowedBody{resp.Body, a}
	}
	return resp, nil
}

// readAll reads an answer that is not a stream.
func (rt *watchTransport) readAll(resp *http.Response, req *http.Request) error {
	defer resp.Body.Close()
	body, err := io.ReadAll(bounded(resp.Body, rt.maxBytes))
	if err != nil {
		return err
	}
	switch {
	case resp.StatusCode != http.StatusOK:
	case bytes.HasPrefix(body, []byte(protobufMagic)):
		return errors.New("the server sent protobuf, and was asked for JSON")
	case elements(body) > mostListed:
		return fmt.Errorf("a list of one object has more than %d elements", mostListed)
	}
	body = []byte(withoutAny(string(body), sentBy(resp, req)))
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	return nil
}

// WrappedRoundTripper lets client-go's helpers look through (k8s.io/apimachinery/pkg/util/net).
func (rt *watchTransport) WrappedRoundTripper() http.RoundTripper { return rt.next }

// attempt is one list or watch. client-go would make a request that got no answer again,
// up to ten times: the attempt ends instead, because Watchers have their own pauses.
type attempt struct {
	watching bool
	cancel   context.CancelFunc
	err      error // why there was no answer; written before the call of client-go returns

	// Of the body of a watch max bytes may be read until the next event, because client-go's
	// decoder holds an event of any size.
	max      int64
	left     atomic.Int64
	exceeded atomic.Bool
}

type attemptKey struct{}

func (a *attempt) in(ctx context.Context) context.Context {
	return context.WithValue(ctx, attemptKey{}, a)
}

func (a *attempt) accept() string {
	as := "PartialObjectMetadataList"
	if a.watching {
		as = "PartialObjectMetadata"
	}
	return "application/json;as=" + as + ";g=meta.k8s.io;v=v1,application/json" // as JSON elements can be counted
}

// reset returns how much was read since the last reset.
func (a *attempt) reset() int64 { return a.max - a.left.Swap(a.max) }

type allowedBody struct {
	io.ReadCloser
	*attempt
}

// Read implements io.Reader. It does not let a panic of the transport through: nobody
// recovers from it in client-go's goroutine.
func (b *allowedBody) Read(p []byte) (n int, err error) {
	left := b.left.Load()
	if left <= 0 {
		b.exceeded.Store(true)
		return 0, errNoEvent
	}
	p = p[:min(int64(len(p)), left)] // a large buffer must not take more at once
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("the HTTP transport panicked: %v", p)
		}
	}()
	n, err = b.ReadCloser.Read(p)
	b.left.Add(-int64(n))
	if err != nil {
		err = io.EOF // however the connection ended, the next watch can begin there
	}
	return n, err
}
