// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go/ast"
	"maps"

	"github.com/freshmapper/freshmapper/hack/fork/source"
)

const (
	cacheDir      = "pkg/cache"
	informersFile = cacheDir + "/internal/informers.go"
	readerFile    = cacheDir + "/internal/cache_reader.go"
	namespaceFile = cacheDir + "/multi_namespace_cache.go"
	sourceFile    = "pkg/internal/source/kind.go"
	handlerDir    = "pkg/handler"
	ownerFile     = handlerDir + "/enqueue_owner.go"
)

// informerChanges are about the resource and the scope of a kind, which upstream's
// informers keep for as long as they live.
var informerChanges = []change{
	{informersFile, followListWatch},
	{readerFile, askStoreForScope},
	{namespaceFile, keepInformers},
	{sourceFile, pollOften},
	{ownerFile, followOwners},
}

func keepInformersFresh(d *Draft) error {
	return d.change(informerChanges,
		handlerDir+"/handler_follow.go", handlerDir+"/handler_follow_test.go",
		cacheDir+"/internal/informers_follow.go", cacheDir+"/internal/informers_follow_test.go",
		cacheDir+"/multi_namespace_follow.go", cacheDir+"/multi_namespace_follow_test.go")
}

// followListWatch has an informer list and watch through a type of ours. It notes
// how this release writes a cache.ListWatch: its functions may take a context.
func followListWatch(f *source.File, noted keys) {
	f.Value("Informers", "mapper", "options.Mapper", "followed(options.Mapper)")
	f.Change("", "ip.makeListWatcher(gvk, obj)", "ip.followListWatcher(gvk, obj)")
	f.Function("(ip *Informers) makeListWatcher", func(*ast.FuncDecl) {})
	list := f.Either("listWatcher.ListWithContextFunc(", "listWatcher.ListFunc(")
	form := keys{
		"LISTFIELD": {"ListWithContextFunc"}, "WATCHFIELD": {"WatchFuncWithContext"},
		"CTXPARAM": {"ctx context.Context,"}, "CTXARG": {"ctx"}, "CTXUSE": {"ctx,"}, "CTXBACK": {"ctx"},
	}
	if list == "listWatcher.ListFunc(" {
		form = keys{
			"LISTFIELD": {"ListFunc"}, "WATCHFIELD": {"WatchFunc"},
			"CTXPARAM": {""}, "CTXARG": {"ip.ctx"}, "CTXUSE": {""}, "CTXBACK": {"context.Background()"},
		}
	}
	f.Either("listWatcher." + form["WATCHFIELD"][0] + "(")
	maps.Copy(noted, form)
}

// askStoreForScope has the reader of an informer ask the store for the scope of a
// kind.
func askStoreForScope(f *source.File, _ keys) {
	const get = "(c *CacheReader) Get"
	f.Remove(get, "if c.scopeName == apimeta.RESTScopeNameRoot {\n\t\tkey.Namespace = \"\"\n\t}")
	f.Change(get, "storeKey := objectKeyToStoreKey(key)", "storeKey := c.storeKey(key)")
}

// keepInformers has a cache of several namespaces keep to the informers that a
// kind had at first.
func keepInformers(f *source.File, _ keys) {
	const all = "newCache(*globalConfig, corev1.NamespaceAll)"
	f.Value("multiNamespaceCache", "RESTMapper", "restMapper", "atHome(restMapper)")
	f.Change("", "clusterCache = "+all, "clusterCache = confined("+all+", namespaces)")
	for _, read := range []struct{ method, obj, call string }{
		{"Get", "obj", "Get(ctx, key, obj, opts...)"},
		{"List", "list", "List(ctx, list, opts...)"},
	} {
		f.Before("(c *multiNamespaceCache) "+read.method, "isNamespaced, err := apiutil.IsObjectNamespaced("+read.obj+", c.Scheme, c.RESTMapper)",
			"if cache := c.unsplit("+read.obj+"); cache != nil {\n\t\treturn cache."+read.call+"\n\t}\n\n\t")
	}
}

// pollOften has a controller that waits for its CRD look for it often enough to
// begin within 5 seconds.
func pollOften(f *source.File, _ keys) {
	f.Change("(ks *Kind[object, request]) Start", "wait.PollUntilContextCancel(ctx, 10*time.Second, true, ", "wait.PollUntilContextCancel(ctx, 4*time.Second, true, ")
}

// followOwners has the handler of owners go on with what it knew last of a kind
// that is gone: it is asked for each event of each object that has such an owner.
func followOwners(f *source.File, _ keys) {
	f.Value("enqueueRequestForOwner[object]", "mapper", "mapper", "followed(mapper)")
}
