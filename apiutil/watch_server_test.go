// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const (
	crdsPath        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
)

// A watchServer adds to a fake server the two resources that tell of changes of
// its API: lists and watches of metadata, in JSON.
type watchServer struct {
	next  http.RoundTripper
	lists map[string]*watchedList // by path; the map does not change
}

func newWatchServer(server *fakeapi.Server) *watchServer {
	return &watchServer{
		next:  server.Client().Transport,
		lists: map[string]*watchedList{crdsPath: newWatchedList(), apiServicesPath: newWatchedList()},
	}
}

func (s *watchServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if list := s.lists[req.URL.Path]; list != nil {
		return list.answer(req)
	}
	return s.next.RoundTrip(req)
}

// A watchedList is the objects of one resource, of which only the names matter.
type watchedList struct {
	mu       sync.Mutex
	version  int            // the last resource version
	objects  map[string]int // names with their resource versions
	events   []watchEvent
	changed  chan struct{} // closed and replaced with each event, and when streams end
	stream   int           // streams with a lower number have ended
	fail     listFailure
	requests map[string]int // "list", "watch"
	open     int            // watches
}

type watchEvent struct {
	version int
	line    []byte
}

// A listFailure is how a list is out of order. The zero value is none.
type listFailure struct {
	code    int    // 0: none
	refused bool   // no connection
	ends    bool   // watches open, fail and end at once
	verb    string // the only one that fails, "list" or "watch"; "": both
}

func newWatchedList() *watchedList {
	return &watchedList{
		version: 1, objects: map[string]int{}, changed: make(chan struct{}),
		requests: map[string]int{},
	}
}

// put creates or changes an object.
func (l *watchedList) put(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	event := "MODIFIED"
	if l.objects[name] == 0 {
		event = "ADDED"
	}
	l.version++
	l.objects[name] = l.version
	l.tell(event, name)
}

func (l *watchedList) remove(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.version++
	delete(l.objects, name)
	l.tell("DELETED", name)
}

func (l *watchedList) tell(event, name string) {
	l.events = append(l.events, watchEvent{l.version, eventLine(event, objectMeta(name, l.version))})
	l.wake()
}

func (l *watchedList) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// setFailure makes requests fail from now on, and ends the watches if there is one.
func (l *watchedList) setFailure(f listFailure) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fail = f
	if f != (listFailure{}) {
		l.endStreams()
	}
}

// drop ends the watches, as a server does now and then.
func (l *watchedList) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.endStreams()
}

func (l *watchedList) endStreams() {
	l.stream++
	l.wake()
}

// count returns how many requests there were of one sort.
func (l *watchedList) count(sort string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests[sort]
}

// watches returns how many watches are open.
func (l *watchedList) watches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

// verbOf returns "list" or "watch".
func verbOf(req *http.Request) string {
	if req.URL.Query().Get("watch") != "" {
		return "watch"
	}
	return "list"
}

func (l *watchedList) answer(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	verb := verbOf(req)
	l.requests[verb]++
	if !strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return jsonAnswer(req, http.StatusNotAcceptable, nil), nil // this server has no more than metadata
	}
	if l.fail.ends && verb == "watch" {
		return jsonAnswer(req, http.StatusOK, []byte(`{"type":"ERROR","object":{"kind":"Status","code":500}}`)), nil
	}
	if l.fail != (listFailure{}) && !l.fail.ends && (l.fail.verb == "" || l.fail.verb == verb) {
		return l.fail.answer(req, verb)
	}
	if verb == "list" {
		limit, _ := strconv.Atoi(req.URL.Query().Get("limit"))
		return jsonAnswer(req, http.StatusOK, l.document(limit)), nil
	}
	return l.watch(req)
}

func (f listFailure) answer(req *http.Request, verb string) (*http.Response, error) {
	if f.refused {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	}
	if f.code == http.StatusNotFound {
		resp := jsonAnswer(req, f.code, []byte("404 page not found\n"))
		resp.Header.Set("Content-Type", "text/plain; charset=utf-8")
		return resp, nil
	}
	segments := strings.Split(req.URL.Path, "/")
	return jsonAnswer(req, f.code, []byte(asStatus(fmt.Sprintf("somebody cannot %s %s", verb, segments[4])))), nil
}

// document is the list, or its first objects if there is a limit.
func (l *watchedList) document(limit int) []byte {
	list := metav1.PartialObjectMetadataList{
		TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadataList", APIVersion: "meta.k8s.io/v1"},
		ListMeta: metav1.ListMeta{ResourceVersion: strconv.Itoa(l.version)},
	}
	names := slices.Sorted(maps.Keys(l.objects))
	if limit > 0 && limit < len(names) {
		names, list.Continue = names[:limit], "more"
	}
	for _, name := range names {
		list.Items = append(list.Items, *objectMeta(name, l.objects[name]))
	}
	data, _ := json.Marshal(list)
	return data
}

// watch opens a stream of the events after a resource version.
func (l *watchedList) watch(req *http.Request) (*http.Response, error) {
	body := &watchBody{ctx: req.Context(), list: l, stream: l.stream, closed: make(chan struct{})}
	body.after, _ = strconv.Atoi(req.URL.Query().Get("resourceVersion"))
	l.open++
	resp := jsonAnswer(req, http.StatusOK, nil)
	resp.ContentLength, resp.Body = -1, body
	return resp, nil
}

// next returns the events after a version and the last version; or a channel that
// is closed when there is something new. ended reports whether the stream is over.
func (l *watchedList) next(after, stream int) (lines []byte, last int, changed <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	last = after
	for _, event := range l.events {
		if event.version > after {
			lines, last = append(lines, event.line...), event.version
		}
	}
	return lines, last, l.changed, stream != l.stream
}

func (l *watchedList) closed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.open--
}

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
