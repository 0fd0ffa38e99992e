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
	// maxObject bounds an event, and a list of one object: each is held in memory as a
	// whole. etcd takes no object of more than 1.5 MiB.
	maxObject = 2 << 20
	// maxVersion bounds a resource version, which is all that is kept of an object.
	maxVersion = 256
	// watchMargin is how much longer than asked a watch may last.
	watchMargin = 30 * time.Second
	// perSecond is how many bytes of events are read a second: a server that never stops
	// sending must not keep a processor busy.
	perSecond = 4 << 20
)

// WatchClient returns a client for watches on the same server. It decodes no object:
// client-go's own clients hold events and lists of any size as a whole. Options.Requested is
// not called for watches, because they are no discovery requests. The Timeout of cfg would
// end them, and does not apply.
func (c *Client) WatchClient(cfg *rest.Config, httpClient *http.Client) (*Client, error) {
	own, options := *httpClient, c.options
	own.Timeout, options.Requested = 0, nil
	options.MaxResponseBytes = min(options.MaxResponseBytes, maxObject)
	return NewClient(cfg, &own, options)
}

// metadataRequest asks for metadata alone, or for whole objects if the server knows no
// better.
func metadataRequest(verb string, resource schema.GroupVersionResource, kind string, params url.Values) request {
	return request{
		verb: verb, params: params,
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
	switch version := o.Metadata.ResourceVersion; {
	case version == "" || version == "0":
		return errors.New("the server sent no resourceVersion")
	case len(version) > maxVersion:
		return fmt.Errorf("the resourceVersion has more than %d bytes", maxVersion)
	}
	return nil
}

// listVersion returns the resource version from which a watch misses nothing that happens
// from now on. It asks for a single object, because it needs none.
func (c *Client) listVersion(ctx context.Context, resource schema.GroupVersionResource) (string, error) {
	r := metadataRequest("list", resource, "PartialObjectMetadataList", url.Values{"limit": {"1"}})
	return get(ctx, c, r, func(seen *exchange) (string, error) {
		list := object{}
		if err := json.Unmarshal(seen.body, &list); err != nil {
			return "", fmt.Errorf("the response is not a list: %w", err)
		}
		return list.Metadata.ResourceVersion, list.check()
	})
}

// Watch watches the objects of a resource after the resource version in place, which it
// moves with each event; if that is empty, from now on. It calls opened once the watch is
// open, and then changed whenever an object came, changed or went. It returns when ctx ends,
// or after about lasting: a server that has not ended the watch by then is dead. The error
// is nil if the watch is over, however it ended. It is an *Error if there was no watch, or
// if the server sent an error or something that is no event. Then the place is lost. That a
// server no longer knows a place is no error.
func (c *Client) Watch(ctx context.Context, resource schema.GroupVersionResource, place *string, lasting time.Duration, opened, changed func()) (err error) {
	resumed := *place != ""
	if !resumed {
		*place, err = c.listVersion(ctx, resource)
	}
	if err == nil {
		err = c.watch(ctx, resource, place, lasting, opened, changed)
	}
	if err != nil {
		*place = ""
	}
	var failed *Error
	if resumed && errors.As(err, &failed) && failed.Code == http.StatusGone {
		return nil
	}
	return err
}

func (c *Client) watch(ctx context.Context, resource schema.GroupVersionResource, place *string, lasting time.Duration, opened, changed func()) error {
	r := metadataRequest("watch", resource, "PartialObjectMetadata", url.Values{
		"watch": {"true"}, "resourceVersion": {*place}, "allowWatchBookmarks": {"true"}, "timeoutSeconds": {strconv.Itoa(int(lasting.Seconds()))},
	})
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// After Stop the timer stays for a while, and must keep no mapper.
	end := time.AfterFunc(c.options.RequestTimeout, func() { cancel(context.DeadlineExceeded) })
	defer end.Stop()
	seen, err := c.send(ctx, r)
	if err != nil {
		return c.failure(r, seen, err)
	}
	defer func() { // waits for the transport, but not long
		cancel(nil)
		_, _ = Guarded(ctx, func() (struct{}, error) { return struct{}{}, seen.stream.Close() })
	}()
	end.Reset(lasting + watchMargin)
	opened()
	var bounded struct{ io.Reader } // one event
	for decoder, read := json.NewDecoder(&bounded), int64(0); ; read = decoder.InputOffset() {
		bounded.Reader = http.MaxBytesReader(nil, seen.stream, c.options.MaxResponseBytes)
		next, err := Guarded(ctx, func() (next watchEvent, err error) {
			err = decoder.Decode(&next)
			return next, err
		})
		broken := err != nil && !errors.Is(err, io.EOF) && ctx.Err() == nil
		if err == nil {
			err = next.check()
		} else if err = unreadable(err); err == nil {
			if broken { // in the middle: the server did not end it
				c.noteFailed()
			}
			return nil
		}
		if err != nil {
			return c.failure(r, &exchange{code: next.Object.Code}, err)
		}
		*place = next.Object.Metadata.ResourceVersion
		if next.Type != watch.Bookmark {
			changed()
		}
		select {
		case <-time.After(time.Duration(decoder.InputOffset()-read) * time.Second / perSecond):
		case <-ctx.Done():
		}
	}
}

var errNoEvent = errors.New("the server sent something that is not a watch event")

// watchEvent is what is read of a metav1.WatchEvent.
type watchEvent struct {
	Type   watch.EventType
	Object object
}

func (e *watchEvent) check() error {
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted, watch.Bookmark:
		return e.Object.check()
	case watch.Error: // whose text is ours: the server's may be long
		return fmt.Errorf("the server ended the watch with error %d %s", e.Object.Code, http.StatusText(e.Object.Code))
	}
	return errNoEvent
}

// unreadable returns the error for what is no event, and nil if the watch is over.
func unreadable(err error) error {
	var noJSON *json.SyntaxError
	var otherType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &noJSON), errors.As(err, &otherType):
		return errNoEvent
	}
	if err = foreign(err); errors.Is(err, errTooLarge) {
		return err
	}
	return nil
}
