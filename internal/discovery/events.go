// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/util/flowcontrol"
)

const (
	// maxItem bounds an event, a value in a list, and a refusal, because each is held in
	// memory as a whole. The metadata of an object take some kilobytes; annotations may
	// take 256 KiB.
	maxItem = 1 << 20
	// maxVersion bounds the resource version, which is all that is kept of an event.
	maxVersion = 256
	// maxNesting bounds how deep the values of a list are nested.
	maxNesting = 1000
	// maxRest is how much of the rest of a list is read to keep the connection.
	maxRest = 64 << 10
	// watchMargin is how much longer than asked a stream may last.
	watchMargin = 30 * time.Second

	// A stream is read in pieces of pieceSize, at most perSecond of them a second, and as
	// many in a burst: a server that never stops sending must not keep a processor busy.
	pieceSize = 4 << 10
	perSecond = 1000
)

// Event is what is known of one event of a watch.
type Event struct {
	Changed         bool   // an object came, changed or went
	ResourceVersion string // where a watch for the next event begins; may be empty
}

// EventStream reads the events of a watch one by one. Next must not be called
// concurrently.
type EventStream struct {
	ctx     context.Context // of the request
	cancel  context.CancelFunc
	body    io.ReadCloser
	source  *allowance
	decoder *json.Decoder
	failure func(error) error
}

func newEventStream(
	ctx context.Context, cancel context.CancelFunc, body io.ReadCloser, maxBytes int64, failure func(error) error,
) *EventStream {
	paced := &pacedReader{ctx: ctx, Reader: body, limiter: flowcontrol.NewTokenBucketRateLimiter(perSecond, perSecond)}
	source := &allowance{Reader: bufio.NewReaderSize(paced, pieceSize), max: maxBytes}
	return &EventStream{ctx: ctx, cancel: cancel, body: body, source: source, decoder: json.NewDecoder(source), failure: failure}
}

// Close ends the stream.
func (s *EventStream) Close() {
	s.cancel()
	_, _ = guarded(s.ctx, func() (struct{}, error) { return struct{}{}, s.body.Close() })
}

// watchEvent is a metav1.WatchEvent. From the object it takes only what every kind has,
// and the code of a metav1.Status.
type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object struct {
		Metadata listMeta `json:"metadata"`
		Code     int32    `json:"code"`
	} `json:"object"`
}

type listMeta struct {
	ResourceVersion string `json:"resourceVersion"`
}

// Next waits for the next event. The error is io.EOF when the stream is over and the next
// stream can begin where this one ended, even if the connection broke. It is a
// *WatchError if the server sends an error, or something that is no event. Once there was
// an error, the caller may only close the stream.
func (s *EventStream) Next() (Event, error) {
	e, err := guarded(s.ctx, s.read)
	switch {
	case errors.Is(err, io.EOF) || errors.Is(err, errAbandoned):
		return Event{}, io.EOF
	case err != nil:
		return Event{}, s.failure(err)
	}
	event := Event{ResourceVersion: e.Object.Metadata.ResourceVersion}
	switch e.Type {
	case watch.Added, watch.Modified, watch.Deleted:
		event.Changed = true
	case watch.Bookmark:
	case watch.Error:
		return Event{}, s.failure(eventError(e.Object.Code))
	default:
		return Event{}, s.failure(errors.New("the server sent something that is not a watch event"))
	}
	if len(event.ResourceVersion) > maxVersion {
		return Event{}, s.failure(errVersion)
	}
	return event, nil
}

// read reads an event. The error is io.EOF if the stream has ended, or has broken.
func (s *EventStream) read() (e watchEvent, err error) {
	s.source.reset()
	err = s.decoder.Decode(&e)
	if err != nil && s.source.err != nil && (errors.Is(err, s.source.err) || errors.Is(err, io.ErrUnexpectedEOF)) {
		return e, io.EOF
	}
	return e, err
}

// eventError returns the error for an error event with this code. The text is ours,
// because the server's text may be long and may repeat what was sent.
func eventError(code int32) error {
	with := "an error that it does not name"
	if code != 0 {
		with = fmt.Sprintf("%d %s", code, http.StatusText(int(code)))
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: code, Message: "the server ended the watch with " + with,
	}}
}

var errVersion = fmt.Errorf("the resourceVersion has more than %d bytes", maxVersion)

// listVersion returns the resource version of a list. It reads no further than that, and
// holds at most one value in memory at a time.
func listVersion(body io.Reader) (string, error) {
	source := &allowance{Reader: body, max: maxItem}
	decoder := json.NewDecoder(source)
	begin, err := source.token(decoder)
	if err != nil {
		return "", err
	}
	if begin != json.Delim('{') {
		return "", errors.New("the answer is not a list")
	}
	for decoder.More() {
		key, err := source.token(decoder)
		if err != nil {
			return "", err
		}
		if key == "metadata" {
			return source.version(decoder)
		}
		if err := source.skip(decoder); err != nil {
			return "", err
		}
	}
	return "", errors.New("the answer is a list without metadata")
}

// version decodes a list's metadata.
func (a *allowance) version(decoder *json.Decoder) (string, error) {
	var meta listMeta
	a.reset()
	err := decoder.Decode(&meta)
	switch {
	case err != nil:
		return "", err
	case meta.ResourceVersion == "":
		return "", errors.New("the answer is a list without a resourceVersion")
	case len(meta.ResourceVersion) > maxVersion:
		return "", errVersion
	}
	return meta.ResourceVersion, nil
}

// skip reads a value and holds at most one token of it.
func (a *allowance) skip(decoder *json.Decoder) error {
	for depth := 0; ; {
		token, err := a.token(decoder)
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			depth++
		case json.Delim('}'), json.Delim(']'):
			depth--
		}
		if depth == 0 {
			return nil
		}
		if depth > maxNesting {
			return fmt.Errorf("the answer is nested more than %d deep", maxNesting)
		}
	}
}

func (a *allowance) token(decoder *json.Decoder) (json.Token, error) {
	a.reset()
	return decoder.Token()
}

// allowance is a reader that fails if more than max bytes are read after a reset, because
// a decoder's buffer grows until it holds a whole value.
type allowance struct {
	io.Reader
	left, max int64
	err       error // the reader's last error
}

func (a *allowance) reset() { a.left = a.max }

// Read implements io.Reader.
func (a *allowance) Read(p []byte) (int, error) {
	if a.left <= 0 {
		return 0, fmt.Errorf("the server sent more than %d bytes for one object", a.max)
	}
	n, err := a.Reader.Read(p[:min(int64(len(p)), a.left)])
	a.left, a.err = a.left-int64(n), err
	return n, err
}

// pacedReader waits before it reads if it has read much lately.
type pacedReader struct {
	io.Reader
	ctx     context.Context
	limiter flowcontrol.RateLimiter
}

// Read implements io.Reader.
func (r *pacedReader) Read(p []byte) (int, error) {
	if err := r.limiter.Wait(r.ctx); err != nil {
		return 0, err
	}
	return r.Reader.Read(p)
}
