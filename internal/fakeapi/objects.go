// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"encoding/json"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// An Object is one of those that there are of a Resource. Whoever may read it gets its name,
// namespace and UID. A write is answered as if it were done, and changes nothing.
type Object struct{ Namespace, Name, UID string }

// An address is what a path below that of a version leads to: a resource, in all namespaces or
// in one, or an object, or a subresource of that.
type address struct {
	target
	resource, namespace, name, subresource string
}

func parseAddress(path string) (address, bool) {
	parts := strings.Split(strings.Trim(path, "/"), "/")
	version := map[string]int{"api": 2, "apis": 3}[parts[0]]
	if version == 0 || len(parts) <= version || slices.Contains(parts, "") {
		return address{}, false
	}
	t, ok := parsePath(strings.Join(parts[:version], "/"))
	a, parts := address{target: t}, parts[version:]
	if len(parts) > 2 && parts[0] == "namespaces" {
		a.namespace, parts = parts[1], parts[2:]
	}
	if len(parts) > 3 {
		return address{}, false
	}
	parts = append(parts, "", "")
	a.resource, a.name, a.subresource = parts[0], parts[1], parts[2]
	return a, ok
}

// verb returns what a request wants of the objects at an address, in RBAC's words.
func (a address) verb(req *http.Request) string {
	switch {
	case req.Method == http.MethodGet && a.name != "":
		return "get"
	case req.Method == http.MethodGet && slices.Contains([]string{"1", "true"}, req.URL.Query().Get("watch")):
		return "watch"
	case req.Method == http.MethodGet:
		return "list"
	case req.Method == http.MethodDelete && a.name == "":
		return "deletecollection"
	}
	verbs := map[string]string{
		http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch", http.MethodDelete: "delete",
	}
	return verbs[req.Method]
}

// verbOf returns what a request wants of objects, or "" if it is for what is served.
func verbOf(req *http.Request) string {
	if a, ok := parseAddress(req.URL.Path); ok {
		return a.verb(req)
	}
	return ""
}

// Discovery matches requests for what is served, and none for objects.
func Discovery() func(*http.Request) bool {
	return func(req *http.Request) bool { return verbOf(req) == "" }
}

// Objects matches requests for objects with one of the verbs, or with any if there are none: in
// one namespace, or in each and in all if it is empty.
func Objects(namespace string, verbs ...string) func(*http.Request) bool {
	return func(req *http.Request) bool {
		a, ok := parseAddress(req.URL.Path)
		return ok && (namespace == "" || namespace == a.namespace) &&
			(len(verbs) == 0 || slices.Contains(verbs, a.verb(req)))
	}
}

// Lists matches requests that read all objects of a resource: a list, and a watch that begins with the objects there
// are, as client-go asks for since v0.35. They may be in one namespace, or in each and in all if it is empty.
func Lists(namespace string) func(*http.Request) bool {
	return func(req *http.Request) bool {
		streamed := Objects(namespace, "watch")(req) && sendsInitialEvents(req)
		return streamed || Objects(namespace, "list")(req)
	}
}

func sendsInitialEvents(req *http.Request) bool {
	return req.URL.Query().Get("sendInitialEvents") == "true"
}

// answerObjects answers a request for objects, or for their metadata alone.
func (w *world) answerObjects(req *http.Request, a address) (*http.Response, error) {
	version, _ := w.version(a.target)
	i := slices.IndexFunc(version.Resources, func(r Resource) bool { return r.Name == a.resource && !r.NoKind })
	verb := a.verb(req)
	everywhere := a.namespace == "" && (verb == "list" || verb == "watch")
	if i < 0 || !everywhere && version.Resources[i].Namespaced != (a.namespace != "") {
		return w.notFound()
	}
	resource := version.Resources[i]
	gvk := schema.GroupVersionKind{Group: a.group, Version: a.version, Kind: resource.Kind}
	if strings.Contains(req.Header.Get("Accept"), ";as=PartialObjectMetadata") {
		gvk = metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata")
	}
	objects := slices.DeleteFunc(slices.Clone(resource.Objects), func(o Object) bool {
		return a.namespace != "" && o.Namespace != a.namespace || a.name != "" && o.Name != a.name
	})
	switch {
	case verb == "watch" && sendsInitialEvents(req) && w.forms.NoWatchList:
		return statusResponse(http.StatusUnprocessableEntity, 0)
	case verb == "watch" && !resource.resumes(req):
		return errorResponse(apierrors.NewResourceExpired("too old resource version"))
	case verb == "watch":
		resp := response(http.StatusOK, jsonType, nil)
		setStream(resp, nil)
		var initial []*metav1.PartialObjectMetadata
		if sendsInitialEvents(req) {
			for _, o := range objects {
				initial = append(initial, o.of(gvk))
			}
			initial = append(initial, initialEventsEnd(gvk, resource.version()))
		}
		body, err := newWatch(req.Context(), a, gvk, initial)
		resp.Body = body
		return resp, err
	case verb == "list", verb == "deletecollection":
		list := metav1.PartialObjectMetadataList{
			ListMeta: metav1.ListMeta{ResourceVersion: resource.version()},
			Items:    []metav1.PartialObjectMetadata{},
		}
		list.SetGroupVersionKind(gvk.GroupVersion().WithKind(gvk.Kind + "List"))
		for _, o := range objects {
			list.Items = append(list.Items, *o.of(gvk))
		}
		return jsonResponse(http.StatusOK, &list)
	case verb == "create" && req.Body != nil: // also of a subresource, such as an eviction
		body, err := io.ReadAll(req.Body)
		return response(http.StatusCreated, req.Header.Get("Content-Type"), body), err
	case len(objects) == 0:
		return errorResponse(apierrors.NewNotFound(schema.GroupResource{Group: a.group, Resource: a.resource}, a.name))
	}
	return jsonResponse(http.StatusOK, objects[0].of(gvk))
}

// of is the object as the server sends it.
func (o Object) of(gvk schema.GroupVersionKind) *metav1.PartialObjectMetadata {
	sent := &metav1.PartialObjectMetadata{
		ObjectMeta: metav1.ObjectMeta{
			Namespace:       o.Namespace,
			Name:            o.Name,
			UID:             types.UID(o.UID),
			ResourceVersion: "1",
		},
	}
	sent.SetGroupVersionKind(gvk)
	return sent
}

// version is the resource version of a list of the resource: another one if anything of it has changed.
func (r Resource) version() string {
	return fmt.Sprint(1 + uint64(crc32.ChecksumIEEE(fmt.Append(nil, r.Kind, r.Namespaced, r.Objects))))
}

// resumes reports whether a watch can go on where the last one ended. kube-apiserver does not know what was before
// it began to serve a resource, so a watch of a CRD that was re-created gets the error 410 Expired, and client-go lists
// again: TestStock/watch-of-recreated-crd-expires. Events of Tell have version 1, from which every watch resumes.
func (r Resource) resumes(req *http.Request) bool {
	from := req.URL.Query().Get("resourceVersion")
	return sendsInitialEvents(req) || slices.Contains([]string{"", "0", "1", r.version()}, from)
}

// initialEventsEnd is the object of the bookmark after the initial events of a watch (KEP-3157).
func initialEventsEnd(gvk schema.GroupVersionKind, version string) *metav1.PartialObjectMetadata {
	end := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		ResourceVersion: version,
		Annotations:     map[string]string{metav1.InitialEventsAnnotationKey: "true"},
	}}
	end.SetGroupVersionKind(gvk)
	return end
}

// A watch is the body of the answer to one. It lasts until its request's context ends, it is
// closed, or EndWatches ends it, whatever happens to the resource.
type watch struct {
	address
	gvk    schema.GroupVersionKind
	ctx    context.Context
	end    context.CancelCauseFunc // the cause is what Read returns
	events chan []byte
	rest   []byte // of an event that is read
}

// unread is how many events of a watch wait at most. More are lost.
const unread = 100

// newWatch makes a watch that begins with events of the initial objects, the last of which is a bookmark.
func newWatch(
	ctx context.Context,
	a address,
	gvk schema.GroupVersionKind,
	initial []*metav1.PartialObjectMetadata,
) (*watch, error) {
	w := &watch{address: a, gvk: gvk, events: make(chan []byte, unread+len(initial))}
	for i, object := range initial {
		event := "ADDED"
		if i == len(initial)-1 {
			event = "BOOKMARK"
		}
		data, err := json.Marshal(metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Object: object}})
		if err != nil {
			return nil, err
		}
		w.events <- data
	}
	w.ctx, w.end = context.WithCancelCause(ctx)
	return w, nil
}

func (w *watch) Read(p []byte) (int, error) {
	for len(w.rest) == 0 {
		select {
		case w.rest = <-w.events:
		case <-w.ctx.Done():
			return 0, context.Cause(w.ctx)
		}
	}
	n := copy(p, w.rest)
	w.rest = w.rest[n:]
	return n, nil
}

func (w *watch) Close() error {
	w.end(http.ErrBodyReadAfterClose)
	return nil
}

// open lists the watches that are open, and forgets the others. s.mu is held.
func (s *Server) open() []*watch {
	s.watches = slices.DeleteFunc(s.watches, func(w *watch) bool { return w.ctx.Err() != nil })
	return s.watches
}

// Watches counts the watches of a resource that are open.
func (s *Server) Watches(resource string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.open() {
		if w.resource == resource {
			n++
		}
	}
	return n
}

// Tell sends an event (for example ADDED) of an object to all open watches of a resource, whether there is
// such an object or not.
func (s *Server) Tell(event, resource string, o Object) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.open() {
		if w.resource != resource || w.namespace != "" && w.namespace != o.Namespace {
			continue
		}
		data, err := json.Marshal(metav1.WatchEvent{Type: event, Object: runtime.RawExtension{Object: o.of(w.gvk)}})
		if err != nil {
			return err
		}
		select {
		case w.events <- data:
		default:
		}
	}
	return nil
}

// EndWatches ends the watches that are open.
func (s *Server) EndWatches() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.open() {
		w.end(io.EOF)
	}
}
