// SPDX-License-Identifier: Apache-2.0

package small

import "github.com/freshmapper/freshmapper/hack/fork/tree"

// shareReads is the fifth patch: the API server is read under a lock of its own,
// and equal misses share a read.
func shareReads(files tree.Files) error {
	return edit(files, mapperFile, func(f file) {
		f.Comment("mapper", "mu", "// discovery holds an element while the API server is read. It protects all fields in the mapper but\n"+
			"\t// those that mu protects, as well as methods that have the `Locked` suffix. Whoever holds it may lock mu.\n"+
			"\tdiscovery chan struct{}\n\n"+
			"\t// flights are the reloads that wait for discovery.\n"+
			"\tflights map[string]*flight\n\n"+
			"\t// mu protects mapper, generation and flights. No request is sent while it is held.\n")
		if !hasContexts(files) {
			f.background()
		}
		f.Rename("reload", "reloadLocked")
		f.Remove("reloadLocked", "m.mu.Lock()")
		f.Remove("reloadLocked", "defer m.mu.Unlock()")
		f.put("flight", "lookup")
		f.Change(addToCache, "m.mapper = restmapper.NewDiscoveryRESTMapper(updatedGroupResources)", "m.publish(restmapper.NewDiscoveryRESTMapper(updatedGroupResources))")
		f.Remove(addToCache, "m.generation++")
		f.Change("Reset", "m.mu.Lock()", "m.discovery <- struct{}{}")
		f.Change("Reset", "defer m.mu.Unlock()", "defer func() { <-m.discovery }()")
		f.Change("Reset", "m.mapper = restmapper.NewDiscoveryRESTMapper(nil)", "m.publish(restmapper.NewDiscoveryRESTMapper(nil))")
		f.Remove("Reset", "m.generation++")
		f.AfterLine("NewDynamicRESTMapper", "apiGroups:", "\n\t\tdiscovery:   make(chan struct{}, 1),\n\t\tflights:     map[string]*flight{},")
	})
}

// background makes the lookups of a release without context variants pass
// context.Background().
func (f file) background() {
	for _, l := range lookups {
		f.Change(l.name, "lookup(m, ", "lookup(context.Background(), m, ")
	}
	f.takeContext("lookup")
	f.takeContext("reload")
	f.passContext("lookup", "m.reload")
	f.Import("context")
}
