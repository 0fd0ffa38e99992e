// SPDX-License-Identifier: Apache-2.0

package small

import (
	"fmt"
	"go/ast"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// Upstream's functions that the series changes.
const (
	reloadGroup = "addKnownGroupAndReload"
	reloadOwned = reloadGroup + "Locked" // as the series calls it
	findGroup   = "findAPIGroupByNameAndMaybeAggregatedDiscoveryLocked"
	fetch       = "fetchGroupVersionResourcesLocked"
	addToCache  = "addGroupVersionResourcesToCacheAndReloadLocked"
)

// lookups are the mapper's methods that reload on a miss, and how each writes
// the versions that it is about.
var lookups = []struct{ name, versions string }{
	{"KindFor", "[]string{%s.Version}"},
	{"KindsFor", "[]string{%s.Version}"},
	{"ResourceFor", "[]string{%s.Version}"},
	{"ResourcesFor", "[]string{%s.Version}"},
	{"RESTMapping", "versions"},
	{"RESTMappings", "versions"},
}

// readLive is the first patch: a lookup without version that finds nothing looks
// at the live group.
func readLive(files tree.Files) error {
	f := &file{files: files, name: mapperFile}
	for _, l := range lookups {
		f.throughLookup(l.name, l.versions)
	}
	f.ownLock()
	f.put("live", "getMapper")
	return f.err
}

// throughLookup has a method ask through lookup, which knows when to reload.
func (f *file) throughLookup(name, versions string) {
	f.function(name, func(s tree.Source, fn *ast.FuncDecl) error {
		for _, call := range []string{"m.getMapper()." + name + "(", "m." + reloadGroup + "("} {
			if !strings.Contains(s.Text(fn.Body), call) {
				return s.Unexpected("%q in %s", call, name)
			}
		}
		s.Replace(s.Offset(fn.Body.Pos()), s.Offset(fn.Body.End()), throughLookup(s, fn, "m, ", versions))
		return nil
	})
}

// throughLookup is the body of a method that asks through lookup.
func throughLookup(s tree.Source, fn *ast.FuncDecl, first, versions string) string {
	query := fn.Type.Params.List[0].Names[0].Name
	passed := query
	if strings.Contains(versions, "%s") {
		versions = fmt.Sprintf(versions, query)
	} else {
		passed += ", " + versions + "..."
	}
	results := s.Text(fn.Type.Results)
	return fmt.Sprintf("{\n\treturn lookup(%s%s.Group, %s, func(known meta.RESTMapper) %s {\n\t\treturn known.%s(%s)\n\t})\n}",
		first, query, versions, results, fn.Name.Name, passed)
}

// ownLock moves the lock of addKnownGroupAndReload out to its caller.
func (f *file) ownLock() {
	f.remove(reloadGroup, "m.mu.Lock()")
	f.remove(reloadGroup, "defer m.mu.Unlock()")
	f.rename(reloadGroup, reloadOwned)
}

// rename renames a method where it is declared and in the first word of its
// comment.
func (f *file) rename(from, to string) {
	f.function(from, func(s tree.Source, fn *ast.FuncDecl) error {
		s.Replace(s.Offset(fn.Name.Pos()), s.Offset(fn.Name.End()), to)
		if fn.Doc != nil && strings.HasPrefix(s.Text(fn.Doc), "// "+from+" ") {
			at := s.Offset(fn.Doc.Pos()) + len("// ")
			s.Replace(at, at+len(from), to)
		}
		return nil
	})
}

// dropGone is the second patch: what is gone is dropped, what failed is kept and
// reported.
func dropGone(files tree.Files) error {
	f := &file{files: files, name: mapperFile}
	// What one version has is worth having if another one fails.
	f.change(fetch, "return nil, &err", "return groupVersionResources, &err")
	f.change(fetch, "delete(m.knownGroups, groupName)", "m.dropVersionLocked(groupVersion)")
	f.remove(reloadOwned, "m."+addToCache)
	f.after(reloadOwned, "groupVersionResources, err :=", "\n\tm."+addToCache+"(groupVersionResources)")

	f.change(findGroup, "apiGroups, maybeResources, _, err", "apiGroups, maybeResources, failed, err")
	f.before(findGroup, "for i := range apiGroups.Groups", "clear(m.apiGroups)\n\t")
	f.before(findGroup, "if len(maybeResources) > 0 {", "m.dropUnservedLocked(len(maybeResources) > 0, failed)\n\t")
	f.change(findGroup, "return m.apiGroups[groupName], didAggregatedDiscovery, nil", "return m.apiGroups[groupName], didAggregatedDiscovery, failedIn(groupName, failed)")
	f.put("gone", "reload")
	f.imports("maps", "slices")
	return f.err
}
