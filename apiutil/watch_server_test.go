// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"net/http"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

const (
	crdsPath        = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
	apiServicesPath = "/apis/apiregistration.k8s.io/v1/apiservices"
)

// A watchServer adds to a fake server the two resources that tell of changes of its API. Each has a
// fake server of its own, so that a fault of one leaves the others alone.
type watchServer struct {
	next  http.RoundTripper
	lists map[string]watchedList // by path; the map does not change
}

func newWatchServer(server *fakeapi.Server) *watchServer {
	return &watchServer{server.Client().Transport, map[string]watchedList{
		crdsPath: {
			fakeapi.New(fakeGroup("apiextensions.k8s.io", fakeVersion("v1", "CustomResourceDefinition:cluster"))),
			"customresourcedefinitions",
		},
		apiServicesPath: {
			fakeapi.New(fakeGroup("apiregistration.k8s.io", fakeVersion("v1", "APIService:cluster"))), "apiservices",
		},
	}}
}

func (s *watchServer) RoundTrip(req *http.Request) (*http.Response, error) {
	if list, ok := s.lists[req.URL.Path]; ok {
		return list.Client().Transport.RoundTrip(req)
	}
	return s.next.RoundTrip(req)
}

// A watchedList is the objects of one resource, of which only the changes matter.
type watchedList struct {
	*fakeapi.Server
	resource string
}

// happen does what a story says.
func (l watchedList) happen(what string, args []string) {
	switch what {
	case "put":
		_ = l.Tell("MODIFIED", l.resource, fakeapi.Object{Name: "any"})
	case "remove":
		_ = l.Tell("DELETED", l.resource, fakeapi.Object{Name: "any"})
	case "end": // watches open, fail and end at once
		l.SetFault(
			fakeapi.Objects("", "watch"),
			fakeapi.Text(http.StatusOK, `{"type":"ERROR","object":{"kind":"Status","code":500}}`),
		)
		l.EndWatches()
	case "fail": // FAULT, and the only verb that fails
		l.SetFault(fakeapi.Objects("", args[1:]...), storyFaults()[args[0]])
		l.EndWatches()
	case "mend":
		l.ClearFaults()
	}
}

// watches returns how many watches are open.
func (l watchedList) watches() int { return l.Watches(l.resource) }
