// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// eventsOf is a stream of what body says.
func eventsOf(body io.Reader) *EventStream {
	ctx, cancel := context.WithCancel(context.Background())
	c := &WatchClient{safe: func(err error) error { return err }}
	failure := func(err error) error { return c.failure("watch", schema.GroupVersionResource{}, err) }
	return newEventStream(ctx, cancel, io.NopCloser(body), maxItem, failure)
}

// heapOf returns what is live on the heap.
func heapOf() int64 {
	var stats runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// However large events are, one at a time is held and none is kept.
func TestHugeEventsAreNotKept(t *testing.T) {
	const events = 16
	event := `{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"7","annotations":{"a":"` + strings.Repeat("x", 900<<10) + `"}}}}`
	var bodies []io.Reader
	for range events {
		bodies = append(bodies, strings.NewReader(event))
	}
	before := heapOf()
	stream := eventsOf(nil)
	defer stream.Close()
	stream.source.Reader = io.MultiReader(bodies...) // without the pace
	n, grown := 0, int64(0)
	for ; ; n++ {
		if n%4 == 1 {
			grown = max(grown, heapOf()-before)
		}
		e, err := stream.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil || !e.Changed || e.ResourceVersion != "7" {
			t.Fatalf("event %d: %+v, %v", n, e, err)
		}
	}
	t.Logf("%d events of %d KiB: %d KiB are held", n, len(event)>>10, grown>>10)
	if n != events || grown > 4<<20 {
		t.Errorf("%d events, %d bytes are held", n, grown)
	}
}

// An honest burst is read at once. A server that never stops sending is read at the pace.
func TestEventsArePaced(t *testing.T) {
	event := []byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"7"}}}` + "\n")
	stream := eventsOf(&oneByOne{event})
	defer stream.Close()
	start := time.Now()
	for n := range perSecond + perSecond/4 {
		if _, err := stream.Next(); err != nil {
			t.Fatal(n, err)
		}
	}
	if took := time.Since(start); took < 200*time.Millisecond {
		t.Errorf("%d events within %v", perSecond+perSecond/4, took)
	}
}

// oneByOne is an endless body of which each Read gets one event.
type oneByOne struct{ event []byte }

func (o *oneByOne) Read(p []byte) (int, error) { return copy(p, o.event), nil }

// An error of the connection that comes together with the last bytes hides nothing.
func TestEventsBesideErrors(t *testing.T) {
	for body, want := range map[string]error{
		`{"type":"ADDED"}`:             nil,
		`{"type":"ADDED"} {"type":"AD`: nil,
		`{"type":"ADDED"} <html>`:      &WatchError{},
	} {
		stream := eventsOf(iotest.DataErrReader(strings.NewReader(body)))
		if e, err := stream.Next(); err != nil || !e.Changed {
			t.Errorf("%s: %+v, %v", body, e, err)
		}
		_, err := stream.Next()
		if over := errors.Is(err, io.EOF); over != (want == nil) {
			t.Errorf("%s: %v", body, err)
		}
		stream.Close()
	}
}

// A server that does not say what is wrong leaves no error without a reason.
func TestWatchErrorsHaveAReason(t *testing.T) {
	stream := eventsOf(strings.NewReader(`{"type":"ERROR","object":{}}`))
	defer stream.Close()
	_, ofEvent := stream.Next()
	c := &WatchClient{safe: func(err error) error { return err }}
	refused := c.failure("list", schema.GroupVersionResource{}, &apierrors.StatusError{ErrStatus: metav1.Status{Code: 410}})
	for want, err := range map[string]error{"the server ended the watch with an error that it does not name": ofEvent, "the server answered 410 Gone": refused} {
		if !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%q does not end in %q", err, want)
		}
	}
}

// No list that a server sends causes a panic, and the result is that of a decoder of the
// whole list.
func FuzzListVersion(f *testing.F) {
	for _, seed := range []string{
		`{"kind":"List","metadata":{"resourceVersion":"5"},"items":[]}`, `{"items":[{},[{"a":"}"}],1,null],"metadata":{"resourceVersion":"5"}}`,
		`{"metadata":{"resourceVersion":5}}`, `{"metadata":null}`, `{}`, `[]`, `{"a":{"metadata":{"resourceVersion":"5"}}}`, ``, `<html>`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		version, err := listVersion(bytes.NewReader(body))
		if (version == "") == (err == nil) || len(version) > maxVersion {
			t.Fatalf("version %q, %v", version, err)
		}
		var whole struct {
			Metadata listMeta `json:"metadata"`
		}
		// Where a key is there twice, in whatever case, the last one would win.
		once := bytes.Count(bytes.ToLower(body), []byte("meta")) == 1 && bytes.Count(bytes.ToLower(body), []byte("version")) == 1
		if err == nil && once && json.Unmarshal(body, &whole) == nil && whole.Metadata.ResourceVersion != version {
			t.Fatalf("version %q; the whole says %q", version, whole.Metadata.ResourceVersion)
		}
	})
}

// No stream that a server sends causes a panic or is read for ever.
func FuzzEvents(f *testing.F) {
	for _, seed := range []string{
		`{"type":"ADDED","object":{"metadata":{"resourceVersion":"5"}}}{"type":"BOOKMARK"}`, `{"type":"ERROR","object":{"code":410}}`,
		`{"type":"ERROR"}`, `{"type":null,"object":null}`, `[]`, ``, `<html>`, `{"type":"ADDED","object":{"metadata":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		stream := eventsOf(bytes.NewReader(body))
		defer stream.Close()
		for n := 0; ; n++ {
			e, err := stream.Next()
			if len(e.ResourceVersion) > maxVersion || n > len(body) {
				t.Fatalf("event %d: %+v", n, e)
			}
			var failure *WatchError
			if err != nil && !errors.Is(err, io.EOF) && !errors.As(err, &failure) {
				t.Fatalf("event %d: %v", n, err)
			}
			if err != nil {
				return
			}
		}
	})
}
