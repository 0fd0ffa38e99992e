// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"maps"

	"github.com/freshmapper/freshmapper/hack/fork/source"
)

const (
	informersFile = "pkg/cache/internal/informers.go"
	readerFile    = "pkg/cache/internal/cache_reader.go"
	namespaceFile = "pkg/cache/multi_namespace_cache.go"
	ownerFile     = "pkg/handler/enqueue_owner.go"
)

// informerEdits are about the resource and the scope of a kind, which upstream's
// informers keep for as long as they live.
var informerEdits = []edit{
	// An informer lists and watches through a type of ours.
	{file: informersFile, do: noteListWatch, changes: []change{
		{"Informers{", "mapper: options.Mapper", "mapper: followed(options.Mapper)"},
		{"", "ip.makeListWatcher(gvk, obj)", "ip.followListWatcher(gvk, obj)"},
	}},
	// The reader of an informer asks the store for the scope of a kind.
	{file: readerFile, changes: []change{
		{"(c *CacheReader) Get", "if c.scopeName == apimeta.RESTScopeNameRoot {\n\t\tkey.Namespace = \"\"\n\t}", ""},
		{"(c *CacheReader) Get", "storeKey := objectKeyToStoreKey(key)", "storeKey := c.storeKey(key)"},
	}},
	// A cache of several namespaces follows the scope of a kind.
	{file: namespaceFile, do: func(f *source.File, _ keys) {
		f.Wrap("newMultiNamespaceCache", "&multiNamespaceCache{", "followNamespaces(", ")")
	}},
	// The handler of owners uses the last known scope of a kind that is gone,
	// because it needs the scope for each event of each object that has such an
	// owner.
	{file: ownerFile, changes: []change{
		{"enqueueRequestForOwner[object]{", "mapper: mapper", `mapper: follow.New(mapper, "")`},
		{"", `logf "` + Module + `/pkg/internal/log"`, `"` + Module + "/pkg/internal/follow\"\n\t…"},
	}},
}

// noteListWatch notes how this release writes a cache.ListWatch: its functions may
// take a context.
func noteListWatch(f *source.File, noted keys) {
	f.Text("(ip *Informers) makeListWatcher") // it is there
	form := keys{
		"LISTFIELD": {"ListWithContextFunc"}, "WATCHFIELD": {"WatchFuncWithContext"},
		"CTXPARAM": {"ctx context.Context,"}, "CTXARG": {"ctx"}, "CTXUSE": {"ctx,"}, "CTXBACK": {"ctx"},
	}
	if f.Either("listWatcher.ListWithContextFunc(", "listWatcher.ListFunc(") == "listWatcher.ListFunc(" {
		form = keys{
			"LISTFIELD": {"ListFunc"}, "WATCHFIELD": {"WatchFunc"},
			"CTXPARAM": {""}, "CTXARG": {"ip.ctx"}, "CTXUSE": {""}, "CTXBACK": {"context.Background()"},
		}
	}
	f.Either("listWatcher." + form["WATCHFIELD"][0] + "(")
	maps.Copy(noted, form)
}
