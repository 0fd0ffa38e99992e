// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/discoverycache"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// newDiscoveryCache makes a discovery cache of a mapper.
func newDiscoveryCache(m *apiutil.DynamicRESTMapper, server *fakeapi.Server) discovery.CachedDiscoveryInterface {
	client := &http.Client{Transport: server.Client().Transport}
	return discoverycache.New(m, must(discovery.NewDiscoveryClientForConfigAndClient(server.Config(), client)))
}

// inCache prints what a cached discovery has: whether it prefers a resource, or a list.
func (s *storyStage) inCache(command, name string) string {
	if command == "has" {
		lists, err := s.cache.ServerPreferredResources()
		failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
		if err != nil && !partial {
			return "failed"
		}
		output := map[bool]string{true: "yes", false: "no"}[slices.Contains(resourcesIn(lists), name)]
		if len(failed) >= len(lists) {
			return output + ", failed all"
		}
		var names []string
		for gv := range failed {
			names = append(names, ", failed "+gv.String())
		}
		slices.Sort(names)
		return output + strings.Join(names, "")
	}
	list, err := s.cache.ServerResourcesForGroupVersion(name)
	if errors.Is(err, memory.ErrCacheNotFound) {
		return "not found"
	}
	output := strings.Join(resourcesIn([]*metav1.APIResourceList{list}), ", ")
	if err != nil {
		output = strings.TrimPrefix(output+", failed", ", ")
	}
	return output
}

// discover does the commands about a cached discovery, and a deferred mapper over it.
func (s *storyStage) discover(command string, args []string) (string, error) {
	switch command {
	case "cache":
		s.cache = newDiscoveryCache(s.mapper, s.server)
		s.deferred = restmapper.NewDeferredDiscoveryRESTMapper(s.cache)
	case "deferred":
		mapping, err := s.deferred.RESTMapping(schema.GroupKind{Group: groupOf(args[0]), Kind: args[1]}, args[2:]...)
		return answerWord(mappingText(mapping), err), nil
	case "short": // as kubectl looks up what its user has typed
		kind, err := restmapper.NewShortcutExpander(s.deferred, s.cache, nil).KindFor(
			schema.GroupVersionResource{Resource: args[0]},
		)
		return answerWord(kindText(kind), err), nil
	case "reset-deferred":
		s.deferred.Reset()
	case "invalidate":
		s.cache.Invalidate()
	case "fresh":
		return fmt.Sprint(s.cache.Fresh()), nil
	case "poll":
		n, _ := strconv.Atoi(args[0])
		pause, _ := time.ParseDuration(args[1])
		for range n {
			_, _ = s.cache.ServerGroups()
			time.Sleep(pause)
		}
	}
	return "", nil
}

// quietly keeps client-go from handling errors: it pauses while it holds a mutex, which hangs a bubble.
func quietly(t *testing.T) {
	handlers := utilruntime.ErrorHandlers
	utilruntime.ErrorHandlers = nil
	t.Cleanup(func() { utilruntime.ErrorHandlers = handlers })
}

// resourcesIn lists resources as "group/version/name".
func resourcesIn(lists []*metav1.APIResourceList) (names []string) {
	for _, list := range lists {
		if list != nil {
			for _, r := range list.APIResources {
				names = append(names, list.GroupVersion+"/"+r.Name)
			}
		}
	}
	slices.Sort(names)
	return names
}
