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
	f := &file{files: files, name: mapperFile}
	f.put("reset", "getMapper")
	assertions := []string{"ResettableRESTMapper"}
	if hasContexts(files) {
		assertions = append(assertions, "ResettableRESTMapperWithContext")
		f.put("resetcontext", "Reset")
		f.contexts()
	}
	f.assert(assertions)
	return f.err
}

var apimachinery = regexp.MustCompile(`\sk8s\.io/apimachinery v0\.([0-9]+)\.`)

// hasContexts reports whether the tree requires an apimachinery, 0.37 or newer,
// that has meta.RESTMapperWithContext.
func hasContexts(files tree.Files) bool {
	minor := apimachinery.FindSubmatch(files["go.mod"].Data)
	return minor != nil && (len(minor[1]) > 2 || string(minor[1]) >= "37")
}

// assert has the compiler check that the mapper is what it should be.
func (f *file) assert(interfaces []string) {
	f.edit(func(s tree.Source) error {
		mapper := named(s, "mapper")
		if mapper == nil {
			return s.Unexpected("type mapper")
		}
		text := ""
		for _, name := range interfaces {
			text += "var _ meta." + name + " = &mapper{}\n"
		}
		s.Replace(s.Above(mapper), s.Above(mapper), text+"\n")
		return nil
	})
}

// contexts gives each lookup a variant with a context, which its requests have.
func (f *file) contexts() {
	for _, l := range lookups {
		f.variant(l.name, func(s tree.Source, fn *ast.FuncDecl) string {
			return throughLookup(s, fn, "ctx, m, ", l.versions)
		})
	}
	f.variant("ResourceSingularizer", func(s tree.Source, fn *ast.FuncDecl) string { return s.Text(fn.Body) })

	f.rename(fetch, fetchContext)
	f.put("fetch", reloadOwned)
	discovery := "discovery.ToAggregatedDiscoveryInterfaceWithContext(m.client)."
	f.change(fetchContext, "m.client.ServerResourcesForGroupVersion(", discovery+"ServerResourcesForGroupVersionWithContext(ctx, ")
	f.change("dropUnservedLocked", "m.client.ServerResourcesForGroupVersion(", discovery+"ServerResourcesForGroupVersionWithContext(ctx, ")
	f.change(findGroup, "m.client.GroupsAndMaybeResources(", discovery+"GroupsAndMaybeResourcesWithContext(ctx")
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
	f.change(reloadOwned, "m."+fetch+"(", "m."+fetchContext+"(ctx, ")
	f.imports("context")
}

// variant makes a method of the same name with a context, and has the one
// without call it.
func (f *file) variant(name string, body func(tree.Source, *ast.FuncDecl) string) {
	f.function(name, func(s tree.Source, fn *ast.FuncDecl) error {
		params := strings.TrimPrefix(s.Text(fn.Type.Params), "(")
		text := fmt.Sprintf("{\n\treturn m.%[1]s(context.Background(), %[2]s)\n}\n\n// %[1]s implements Mapper.%[1]s.\nfunc (m *mapper) %[1]s(ctx context.Context, %[3]s %[4]s %[5]s",
			name+withContext, arguments(fn), params, s.Text(fn.Type.Results), body(s, fn))
		s.Replace(s.Offset(fn.Body.Pos()), s.Offset(fn.Body.End()), text)
		return nil
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
func (f *file) takeContext(name string) {
	f.function(name, func(s tree.Source, fn *ast.FuncDecl) error {
		at := s.Offset(fn.Type.Params.Opening) + 1
		s.Replace(at, at, "ctx context.Context, ")
		return nil
	})
}

// passContext passes it on in the only call of callee.
func (f *file) passContext(function, callee string) {
	f.function(function, func(s tree.Source, fn *ast.FuncDecl) error {
		var calls []*ast.CallExpr
		ast.Inspect(fn, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok && s.Text(call.Fun) == callee {
				calls = append(calls, call)
			}
			return true
		})
		if len(calls) != 1 {
			return s.Unexpected("single call of %s in %s (there are %d)", callee, function, len(calls))
		}
		at := s.Offset(calls[0].Lparen) + 1
		s.Replace(at, at, "ctx, ")
		return nil
	})
}
