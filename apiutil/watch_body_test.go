// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// A watchBody is the body of an answer to a watch. Read is called by one
// goroutine, Close by any.
type watchBody struct {
	ctx     context.Context
	list    *watchedList
	stream  int
	after   int // the resource version up to which all has been sent
	pending bytes.Buffer

	once   sync.Once
	closed chan struct{}
}

func (b *watchBody) Read(p []byte) (int, error) {
	for b.pending.Len() == 0 {
		lines, last, changed, ended := b.list.next(b.after, b.stream)
		b.after = last
		b.pending.Write(lines)
		if len(lines) > 0 {
			continue
		}
		if ended {
			return 0, io.EOF
		}
		select {
		case <-changed:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		case <-b.closed:
			return 0, http.ErrBodyReadAfterClose
		}
	}
	return b.pending.Read(p)
}

func (b *watchBody) Close() error {
	b.once.Do(func() {
		close(b.closed)
		b.list.closed()
	})
	return nil
}

func objectMeta(name string, version int) *metav1.PartialObjectMetadata {
	return &metav1.PartialObjectMetadata{
		TypeMeta:   metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"},
		ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(version)},
	}
}

func eventLine(event string, object *metav1.PartialObjectMetadata) []byte {
	raw, _ := json.Marshal(object)
	line, _ := json.Marshal(metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Raw: raw}})
	return append(line, '\n')
}

func jsonAnswer(req *http.Request, code int, body []byte) *http.Response {
	return &http.Response{
		StatusCode: code, Status: fmt.Sprintf("%d %s", code, http.StatusText(code)),
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}
}
