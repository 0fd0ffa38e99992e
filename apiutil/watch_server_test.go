// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"path"
	"strconv"
	"strings"
	"sync"
	"syscall"

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

// A watchedList is the objects of one resource, of which only the changes matter.
type watchedList struct {
	mu       sync.Mutex
	events   []string      // one for each resource version after the first
	changed  chan struct{} // closed and replaced with each event, and when streams end
	stream   int           // streams with a lower number have ended
	fail     listFailure
	requests map[string]int // "list", "watch"
	open     int            // watches
}

// A listFailure is how a list is out of order. The zero value is none.
type listFailure struct {
	code    int    // 0: none
	refused bool   // no connection
	ends    bool   // watches open, fail and end at once
	verb    string // the only one that fails, "list" or "watch"; "": both
}

func newWatchedList() *watchedList {
	return &watchedList{changed: make(chan struct{}), requests: map[string]int{}}
}

// put creates or changes an object.
func (l *watchedList) put(name string) { l.tell("MODIFIED", name) }

// happen does what a story says.
func (l *watchedList) happen(what string, args []string) {
	switch what {
	case "put":
		l.put("any")
	case "remove":
		l.tell("DELETED", "any")
	case "drop":
		l.drop()
	case "end":
		l.setFailure(listFailure{ends: true})
	case "mend":
		l.setFailure(listFailure{})
	case "fail":
		code, _ := strconv.Atoi(args[0])
		l.setFailure(listFailure{code: code, refused: args[0] == "refuse", verb: strings.Join(args[1:], "")})
	}
}

func (l *watchedList) tell(event, name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, fmt.Sprintf(`{"type":%q,"object":{"metadata":{"name":%q,"resourceVersion":"%d"}}}`+"\n", event, name, l.version()+1))
	l.wake()
}

func (l *watchedList) version() int { return len(l.events) + 1 }

func (l *watchedList) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}

// setFailure makes requests fail from now on, and ends the watches if there is one.
func (l *watchedList) setFailure(f listFailure) {
	l.mu.Lock()
	l.fail = f
	l.mu.Unlock()
	if f != (listFailure{}) {
		l.drop()
	}
}

// drop ends the watches, as a server does now and then.
func (l *watchedList) drop() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stream++
	l.wake()
}

// count returns how many requests there were of one sort.
func (l *watchedList) count(sort string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests[sort]
}

// watches returns how many watches are open: their bodies were not closed.
func (l *watchedList) watches() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.open
}

func (l *watchedList) answer(req *http.Request) (*http.Response, error) {
	if err := req.Context().Err(); err != nil {
		return nil, err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	verb := "list"
	if req.URL.Query().Has("watch") {
		verb = "watch"
	}
	l.requests[verb]++
	if !strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata") {
		return jsonAnswer(req, http.StatusNotAcceptable, ""), nil // this server has no more than metadata
	}
	f := l.fail
	fails := f.verb == "" || f.verb == verb
	switch {
	case f.ends && verb == "watch":
		return jsonAnswer(req, http.StatusOK, `{"type":"ERROR","object":{"kind":"Status","code":500}}`), nil
	case f.refused && fails:
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: syscall.ECONNREFUSED}
	case f.code == http.StatusNotFound && fails:
		return jsonAnswer(req, f.code, "404 page not found\n"), nil
	case f.code > 0 && fails:
		return jsonAnswer(req, f.code, asStatus(fmt.Sprintf("somebody cannot %s %s", verb, path.Base(req.URL.Path)))), nil
	case verb == "list": // the mapper reads no object
		return jsonAnswer(req, http.StatusOK, fmt.Sprintf(`{"kind":"PartialObjectMetadataList","metadata":{"resourceVersion":"%d"},"items":[]}`, l.version())), nil
	}
	return l.watch(req), nil
}

// watch opens a stream of the events after a resource version.
func (l *watchedList) watch(req *http.Request) *http.Response {
	after, _ := strconv.Atoi(req.URL.Query().Get("resourceVersion"))
	reader, writer := io.Pipe()
	stream, ctx := l.stream, req.Context()
	context.AfterFunc(ctx, func() { writer.CloseWithError(ctx.Err()) })
	go func() {
		for {
			lines, changed, ended := l.next(&after, stream)
			if lines != "" {
				if _, err := io.WriteString(writer, lines); err != nil {
					return
				}
			}
			if ended {
				_ = writer.Close()
				return
			}
			select {
			case <-changed:
			case <-ctx.Done():
				return
			}
		}
	}()
	l.open++
	resp := jsonAnswer(req, http.StatusOK, "")
	resp.ContentLength, resp.Body = -1, &watchBody{PipeReader: reader, list: l}
	return resp
}

// next returns the events after a version, which it moves, and a channel that is closed when
// there is something new. ended reports whether the stream is over.
func (l *watchedList) next(after *int, stream int) (lines string, changed <-chan struct{}, ended bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	lines = strings.Join(l.events[*after-1:], "")
	*after = l.version()
	return lines, l.changed, stream != l.stream
}

type watchBody struct {
	*io.PipeReader
	list *watchedList
	once sync.Once
}

func (b *watchBody) Close() error {
	b.once.Do(func() {
		b.list.mu.Lock()
		defer b.list.mu.Unlock()
		b.list.open--
	})
	return b.PipeReader.Close()
}

func jsonAnswer(req *http.Request, code int, body string) *http.Response {
	return &http.Response{
		StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Request: req,
		Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(bytes.NewBufferString(body)), ContentLength: int64(len(body)),
	}
}
