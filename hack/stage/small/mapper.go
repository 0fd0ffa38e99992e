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

// lookups are the mapper's methods that reload on a miss, and the expression in
// each for the versions that it asks for.
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
	return edit(files, mapperFile, func(f file) {
		for _, l := range lookups {
			f.throughLookup(l.name, l.versions)
		}
		// its caller takes the lock
		f.Remove(reloadGroup, "m.mu.Lock()")
		f.Remove(reloadGroup, "defer m.mu.Unlock()")
		f.Rename(reloadGroup, reloadOwned)
		f.put("live", "getMapper")
	})
}

// throughLookup makes a method call lookup, which knows when to reload.
func (f file) throughLookup(name, versions string) {
	f.Function(name, func(fn *ast.FuncDecl) {
		for _, call := range []string{"m.getMapper()." + name + "(", "m." + reloadGroup + "("} {
			if !strings.Contains(f.Text(fn.Body), call) {
				f.Unexpected("%q in %s", call, name)
				return
			}
		}
		f.Put(fn.Body, f.lookupBody(fn, "m, ", versions))
	})
}

// lookupBody is the body of a method that asks through lookup.
func (f file) lookupBody(fn *ast.FuncDecl, first, versions string) string {
	query := fn.Type.Params.List[0].Names[0].Name
	passed := query
	if strings.Contains(versions, "%s") {
		versions = fmt.Sprintf(versions, query)
	} else {
		passed += ", " + versions + "..."
	}
	results := f.Text(fn.Type.Results)
	return fmt.Sprintf("{\n\treturn lookup(%s%s.Group, %s, func(known meta.RESTMapper) %s {\n\t\treturn known.%s(%s)\n\t})\n}",
		first, query, versions, results, fn.Name.Name, passed)
}

// dropGone is the second patch: what is gone is dropped, what failed is kept and
// reported.
func dropGone(files tree.Files) error {
	return edit(files, mapperFile, func(f file) {
		// If one version fails, what the others have is kept.
		f.Change(fetch, "return nil, &err", "return groupVersionResources, &err")
		f.Change(fetch, "delete(m.knownGroups, groupName)", "m.dropVersionLocked(groupVersion)")
		f.Remove(reloadOwned, "m."+addToCache+"(groupVersionResources)")
		f.After(reloadOwned, "groupVersionResources, err :=", "\n\tm."+addToCache+"(groupVersionResources)")

		f.Change(findGroup, "apiGroups, maybeResources, _, err", "apiGroups, maybeResources, failed, err")
		f.Before(findGroup, "for i := range apiGroups.Groups", "clear(m.apiGroups)\n\t")
		f.Before(findGroup, "if len(maybeResources) > 0 {", "m.dropUnservedLocked(len(maybeResources) > 0, failed)\n\t")
		f.Change(findGroup, "return m.apiGroups[groupName], didAggregatedDiscovery, nil", "return m.apiGroups[groupName], didAggregatedDiscovery, failedIn(groupName, failed)")
		f.put("gone", "reload")
		f.Import("maps")
		f.Import("slices")
	})
}
