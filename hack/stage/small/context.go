// SPDX-License-Identifier: Apache-2.0

package small

import (
	"fmt"
	"go/ast"
	"regexp"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	withContext  = "WithContext"
	fetchContext = "fetchGroupVersionResourcesWithContextLocked"
)

// resettable is the third patch: Reset and, where apimachinery knows them, the
// context variants.
func resettable(files tree.Files) error {
	return edit(files, mapperFile, func(f file) {
		f.put("reset", "getMapper")
		assertions := "var _ meta.ResettableRESTMapper = &mapper{}\n"
		if hasContexts(files) {
			assertions += "var _ meta.ResettableRESTMapperWithContext = &mapper{}\n"
			f.put("resetcontext", "Reset")
			f.contexts()
		}
		f.DeclareBefore("mapper", assertions+"\n")
	})
}

var apimachinery = regexp.MustCompile(`\sk8s\.io/apimachinery v0\.([0-9]+)\.`)

// hasContexts reports whether the tree requires an apimachinery, 0.37 or newer,
// that has meta.RESTMapperWithContext.
func hasContexts(files tree.Files) bool {
	minor := apimachinery.FindSubmatch(files["go.mod"].Data)
	return minor != nil && (len(minor[1]) > 2 || string(minor[1]) >= "37")
}

// contexts gives each lookup a variant with a context, and passes that to the
// requests.
func (f file) contexts() {
	for _, l := range lookups {
		f.variant(l.name, func(fn *ast.FuncDecl) string { return f.lookupBody(fn, "ctx, m, ", l.versions) })
	}
	f.variant("ResourceSingularizer", func(fn *ast.FuncDecl) string { return f.Text(fn.Body) })

	f.Rename(fetch, fetchContext)
	f.put("fetch", reloadOwned)
	discovery := "discovery.ToAggregatedDiscoveryInterfaceWithContext(m.client)."
	f.Change(fetchContext, "m.client.ServerResourcesForGroupVersion(", discovery+"ServerResourcesForGroupVersionWithContext(ctx, ")
	f.Change("dropUnservedLocked", "m.client.ServerResourcesForGroupVersion(", discovery+"ServerResourcesForGroupVersionWithContext(ctx, ")
	f.Change(findGroup, "m.client.GroupsAndMaybeResources(", discovery+"GroupsAndMaybeResourcesWithContext(ctx")
	for _, name := range []string{"lookup", "reload", "addNewVersionsAndReloadLocked", reloadOwned, findGroup, fetchContext, "dropUnservedLocked"} {
		f.takeContext(name)
	}
	f.passContext("lookup", "m.reload")
	f.passContext("reload", "m.addNewVersionsAndReloadLocked")
	f.passContext("reload", "m."+reloadOwned)
	f.passContext("addNewVersionsAndReloadLocked", "m."+findGroup)
	f.passContext("addNewVersionsAndReloadLocked", "m."+reloadOwned)
	f.passContext(reloadOwned, "m."+findGroup)
	f.passContext(findGroup, "m.dropUnservedLocked")
	f.Change(reloadOwned, "m."+fetch+"(", "m."+fetchContext+"(ctx, ")
	f.Import("context")
}

// variant adds a variant of a method that takes a context, and makes the method
// without a context call it.
func (f file) variant(name string, body func(*ast.FuncDecl) string) {
	f.Function(name, func(fn *ast.FuncDecl) {
		params := strings.TrimPrefix(f.Text(fn.Type.Params), "(")
		f.Put(fn.Body, fmt.Sprintf("{\n\treturn m.%[1]s(context.Background(), %[2]s)\n}\n\n// %[1]s implements Mapper.%[1]s.\nfunc (m *mapper) %[1]s(ctx context.Context, %[3]s %[4]s %[5]s",
			name+withContext, arguments(fn), params, f.Text(fn.Type.Results), body(fn)))
	})
}

// arguments passes a function's parameters on.
func arguments(fn *ast.FuncDecl) string {
	var names []string
	for _, param := range fn.Type.Params.List {
		for _, name := range param.Names {
			names = append(names, name.Name)
		}
		if _, variadic := param.Type.(*ast.Ellipsis); variadic {
			names[len(names)-1] += "..."
		}
	}
	return strings.Join(names, ", ")
}

// takeContext gives a function a context as its first parameter.
func (f file) takeContext(name string) {
	f.Function(name, func(fn *ast.FuncDecl) {
		f.Put(fn.Type.Params, "(ctx context.Context, "+strings.TrimPrefix(f.Text(fn.Type.Params), "("))
	})
}

// passContext passes it on in the only call of callee.
func (f file) passContext(function, callee string) {
	f.Change(function, callee+"(", callee+"(ctx, ")
}
