// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
)

const (
	// maxObject bounds an event, and a list of one object: each is held in memory as a whole. etcd takes no object of
	// more than 1.5 MiB.
	maxObject = 2 << 20
	// maxResourceVersion bounds a resource version, which is all that is kept of an object.
	maxResourceVersion = 256
	// watchMargin is how much longer than asked a watch may last.
	watchMargin = 30 * time.Second
	// maxBytesPerSecond is how many bytes of events are read: a server that never stops sending must not keep a
	// processor busy.
	maxBytesPerSecond = 4 << 20
)

// WatchClient returns a client for watches on the same server. It decodes no object: client-go's own clients hold
// events and lists of any size as a whole. Options.Requested is not called for watches, because they are no discovery
// requests. The Timeout of cfg would end them, and does not apply.
func (c *Client) WatchClient(cfg *rest.Config, httpClient *http.Client) (*Client, error) {
	own := *httpClient
	own.Timeout = 0
	options := c.options
	options.Requested = nil
	options.MaxResponseBytes = min(options.MaxResponseBytes, maxObject)
	return NewClient(cfg, &own, options)
}

// metadataRequest asks for metadata alone, or for whole objects if the server cannot send less.
func metadataRequest(verb string, resource schema.GroupVersionResource, kind string, params url.Values) request {
	return request{
		verb:   verb,
		params: params,
		path:   "/apis/" + resource.Group + "/" + resource.Version + "/" + resource.Resource,
		accept: "application/json;as=" + kind + ";g=meta.k8s.io;v=v1,application/json",
	}
}

// object is what is read of an object, a list or a metav1.Status.
type object struct {
	Metadata struct{ ResourceVersion string }
	Code     int
}

func (o *object) check() error {
	version := o.Metadata.ResourceVersion
	if version == "" || version == "0" {
		return errors.New("the server sent no resourceVersion")
	}
	if len(version) > maxResourceVersion {
		return fmt.Errorf("the resourceVersion has more than %d bytes", maxResourceVersion)
	}
	return nil
}

// currentResourceVersion returns the resource version from which a watch misses nothing that happens from now on. It
// asks for a single object, because it needs none.
func (c *Client) currentResourceVersion(ctx context.Context, resource schema.GroupVersionResource) (string, error) {
	r := metadataRequest("list", resource, "PartialObjectMetadataList", url.Values{"limit": {"1"}})
	return get(ctx, c, r, func(x *exchange) (string, error) {
		list := object{}
		if err := json.Unmarshal(x.body, &list); err != nil {
			return "", fmt.Errorf("the response is not a list: %w", err)
		}
		return list.Metadata.ResourceVersion, list.check()
	})
}

// Watch watches the objects of a resource from resourceVersion on, or from now on if that is empty. It sets
// resourceVersion to that of each event, so that the next watch can begin there. It calls opened once the watch is
// open, and then changed whenever an object was created, changed or deleted.
//
// It returns when ctx ends, or after about timeout: a server that has not ended the watch by then does not answer any
// more. The error is nil if the watch is over, however it ended. It is an *Error if there was no watch, or if the
// server sent an error or something that is no event; then resourceVersion is empty afterwards, because events may
// have been missed. It is also empty if the server no longer knew the resource version, which is no error.
func (c *Client) Watch(
	ctx context.Context, resource schema.GroupVersionResource, resourceVersion *string, timeout time.Duration,
	opened, changed func(),
) (err error) {
	resumed := *resourceVersion != ""
	if !resumed {
		*resourceVersion, err = c.currentResourceVersion(ctx, resource)
	}
	if err == nil {
		err = c.watch(ctx, resource, resourceVersion, timeout, opened, changed)
	}
	if err != nil {
		*resourceVersion = ""
	}
	var failed *Error
	if resumed && errors.As(err, &failed) && failed.Code == http.StatusGone {
		return nil
	}
	return err
}

func (c *Client) watch(
	ctx context.Context, resource schema.GroupVersionResource, resourceVersion *string, timeout time.Duration,
	opened, changed func(),
) error {
	r := metadataRequest("watch", resource, "PartialObjectMetadata", url.Values{
		"watch":               {"true"},
		"resourceVersion":     {*resourceVersion},
		"allowWatchBookmarks": {"true"},
		"timeoutSeconds":      {strconv.Itoa(int(timeout.Seconds()))},
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The timer refers to nothing but cancel: after Stop it stays in memory for a while, and must keep no mapper there.
	deadline := time.AfterFunc(c.options.RequestTimeout, func() { cancel(context.DeadlineExceeded) })
	defer deadline.Stop()
	x, err := c.send(ctx, r)
	if err != nil {
		return c.failure(r, x, err)
	}
	defer func() { // waits for the transport, but not long
		cancel(nil)
		_, _ = guarded(ctx, func() (struct{}, error) { return struct{}{}, x.stream.Close() })
	}()
	deadline.Reset(timeout + watchMargin)
	opened()
	events := newEventReader(x.stream, c.options.MaxResponseBytes)
	for {
		event, size, err := events.next(ctx)
		if err != nil {
			invalid := invalidEvent(err)
			if invalid != nil {
				return c.failure(r, &exchange{code: event.Object.Code}, invalid)
			}
			brokeOff := !errors.Is(err, io.EOF) && ctx.Err() == nil
			if brokeOff { // otherwise the server, or the deadline, has ended the watch
				c.noteFailed()
			}
			return nil
		}
		if err := event.check(); err != nil {
			return c.failure(r, &exchange{code: event.Object.Code}, err)
		}
		*resourceVersion = event.Object.Metadata.ResourceVersion
		if event.Type != watch.Bookmark {
			changed()
		}
		Sleep(ctx, time.Duration(size)*time.Second/maxBytesPerSecond)
	}
}

// eventReader reads the events of a watch, each within a bound.
type eventReader struct {
	stream   io.ReadCloser
	maxBytes int64
	input    struct{ io.Reader } // of the decoder: what it may still read for one event
	decoder  *json.Decoder
}

func newEventReader(stream io.ReadCloser, maxBytes int64) *eventReader {
	e := &eventReader{stream: stream, maxBytes: maxBytes}
	e.decoder = json.NewDecoder(&e.input)
	return e
}

// next returns the next event, and how many bytes it took. After an error, nobody may call it again.
func (e *eventReader) next(ctx context.Context) (event watchEvent, size int64, err error) {
	before := e.decoder.InputOffset()
	e.input.Reader = http.MaxBytesReader(nil, e.stream, e.maxBytes)
	event, err = guarded(ctx, func() (event watchEvent, err error) {
		err = e.decoder.Decode(&event)
		return event, err
	})
	if err != nil {
		return event, 0, err
	}
	return event, e.decoder.InputOffset() - before, nil
}

var errNotAnEvent = errors.New("the server sent something that is not a watch event")

// watchEvent is what is read of a metav1.WatchEvent.
type watchEvent struct {
	Type   watch.EventType
	Object object
}

func (e *watchEvent) check() error {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		return e.Object.check()
	case watch.Error: // the text is ours, because the server's may be long
		code := e.Object.Code
		return fmt.Errorf("the server ended the watch with error %d %s", code, http.StatusText(code))
	}
	return errNotAnEvent
}

// invalidEvent returns the error for something that is no event, or is too large for one. It returns nil if err means
// that the watch is over.
func invalidEvent(err error) error {
	var notJSON *json.SyntaxError
	var otherType *json.UnmarshalTypeError
	if errors.As(err, &notJSON) || errors.As(err, &otherType) {
		return errNotAnEvent
	}
	sanitized := sanitize(err)
	if errors.Is(sanitized, errTooLarge) {
		return sanitized
	}
	return nil
}
