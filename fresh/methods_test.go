// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"reflect"
	"slices"
	"strings"
	"testing"

	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// A method that a decorator only promotes is upstream's of before the first move. This test names those that
// a later release adds. What is in the list may stay so, for the reason that is given.
func TestPromotedMethods(t *testing.T) {
	set, own := token.NewFileSet(), map[string][]string{}
	packages, err := parser.ParseDir(set, ".", func(info fs.FileInfo) bool { return !strings.HasSuffix(info.Name(), "_test.go") }, 0) //nolint:staticcheck // One folder without build tags.
	must(t, err)
	for _, file := range packages["fresh"].Files {
		for _, decl := range file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv != nil {
				receiver := strings.TrimLeft(types.ExprString(f.Recv.List[0].Type), "*")
				own[receiver] = append(own[receiver], f.Name.Name)
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
