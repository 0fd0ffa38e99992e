// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"

	"github.com/freshmapper/freshmapper/fresh"
)

// What the tests are about. A controller-runtime tree with this mapper inside has other names for it.
var (
	newClient, newWithWatch, newNamespaced = fresh.NewClient, fresh.NewWithWatch, fresh.NewNamespacedClient
	newCache                               = fresh.NewCache
)

// An operator changes one line: fresh.NewManager instead of ctrl.NewManager.
func ExampleNewManager() {
	mgr, err := fresh.NewManager(ctrl.GetConfigOrDie(), ctrl.Options{HealthProbeBindAddress: ":8081"})
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the manager:", err)
		os.Exit(1)
	}
	if err := mgr.Start(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "run the manager:", err)
		os.Exit(1)
	}
}

// Another cluster of the same program gets a mapper, a client and a cache of its own.
func ExampleCluster() {
	other, err := cluster.New(ctrl.GetConfigOrDie(), fresh.Cluster)
	if err != nil {
		fmt.Fprintln(os.Stderr, "make the cluster:", err)
		os.Exit(1)
	}
	fmt.Println(other.GetRESTMapper() != nil)
}

// A method that a decorator only promotes is upstream's of before the first move. This test names those that
// a later release adds. What is in the list may stay so, for the reason that is given.
func TestPromotedMethods(t *testing.T) {
	own := map[string][]string{}
	files, err := filepath.Glob("*.go")
	must(t, err)
	for _, file := range files {
		if !strings.HasSuffix(file, "_test.go") {
			source, err := os.ReadFile(file)
			must(t, err)
			for _, method := range regexp.MustCompile(`(?m)^func \((?:\w+ )?\*?(\w+)\) (\w+)`).FindAllStringSubmatch(string(source), -1) {
				own[method[1]] = append(own[method[1]], method[2])
			}
		}
	}
	for _, test := range []struct {
		decorator string
		of        reflect.Type
		may       []string
	}{
		{"followingClient", reflect.TypeFor[client.Client](), nil},
		{"followingWatch followingClient", reflect.TypeFor[client.WithWatch](), nil},
		{"followingSubResource", reflect.TypeFor[client.SubResourceClient](), nil},
		{"followingNamespaced", reflect.TypeFor[client.Client](), []string{"Get", // writes and lists alone need the namespace
			"GroupVersionKindFor", "IsObjectNamespaced", "RESTMapper", "Scheme"}},
		{"namespacedSubResource", reflect.TypeFor[client.SubResourceClient](), []string{"Get"}},
		{"followingCache", reflect.TypeFor[cache.Cache](), nil},
		{"informer", reflect.TypeFor[cache.Informer](), []string{"HasSyncedChecker"}}, // the first list, which a retired generation ends
		{"sharedInformer informer", reflect.TypeFor[toolscache.SharedIndexInformer](), []string{"HasSyncedChecker",
			"GetController", "Run", "RunWithContext", "SetTransform", "SetWatchErrorHandler", "SetWatchErrorHandlerWithContext"}}, // upstream's cache calls these
		{"store", reflect.TypeFor[toolscache.Indexer](), []string{"Add", "Update", "Delete", "Replace", "Resync", // only informers write
			"Bookmark", "LastStoreSyncResourceVersion"}},
		{"handler", reflect.TypeFor[toolscache.ResourceEventHandlerRegistration](), []string{"HasSyncedChecker"}},
	} {
		var known []string
		for _, decorator := range strings.Fields(test.decorator) {
			known = append(known, own[decorator]...)
		}
		for i := range test.of.NumMethod() {
			if name := test.of.Method(i).Name; !slices.Contains(known, name) && !slices.Contains(test.may, name) {
				t.Errorf("%s of %s is only promoted: after a move it is that of the old generation", name, test.decorator)
			}
		}
	}
}
