// SPDX-License-Identifier: Apache-2.0

package tree

const (
	clientDir      = "pkg/client"
	clientFile     = clientDir + "/client_rest_resources.go"
	fieldsFile     = clientDir + "/client.go"
	watchFile      = clientDir + "/watch.go"
	namespacedFile = clientDir + "/namespaced_client.go"
	informersFile  = "pkg/cache/internal/informers.go"
	readerFile     = "pkg/cache/internal/cache_reader.go"
	namespaceFile  = "pkg/cache/multi_namespace_cache.go"
	ownerFile      = "pkg/handler/enqueue_owner.go"
)

// edits are what is done to upstream's files, in order.
var edits = []edit{
	// The client keeps the mapping of each kind for ever, and holds its lock during
	// discovery. It has to check that what it keeps is still true, and to do discovery
	// without its lock. Nothing but the lookup happens with the lock held: all of it is here.
	{file: clientFile, changes: []change{
		{
			"func (c *clientRestResources) getResource(obj <OBJ>) (*resourceMeta, error) {",
			"func (c *clientRestResources) getResource(obj <OBJ>) (*resourceMeta, error) {\n" +
				"if one, ok := c.mapper.(sole); ok {\nreturn one.resourceMeta, nil\n}",
		},
		{"if known { return r, nil", "if known {\n\t\treturn c.current(r)"},
		{
			"c.mu.Lock() defer c.mu.Unlock() r, err = c.newResource(<KIND>) if err != nil { return nil, err } <ENTRY> = r return r, err }\n",
			"// without the lock: discovery may take its time, and other kinds need not wait for it\n" +
				"r, err = c.newResource(<KIND>)\nif err != nil {\nreturn nil, err\n}\nc.mu.Lock()\ndefer c.mu.Unlock()\n<ENTRY> = r\nreturn r, err\n}\n",
		},
	}},
	// If a kind is gone, the client takes the last known scope of the kind: upstream's
	// mapper never forgets a kind.
	{file: fieldsFile, changes: []change{
		{"if options.HTTPClient == nil {", "ownClient := options.HTTPClient == nil\n\tif ownClient {"},
		{"apiutil.NewDynamicRESTMapper(config, options.HTTPClient)", "mapperOf(config, options.HTTPClient, ownClient)"},
		{"clientRestResources{<FIELDS>mapper: options.Mapper,", "clientRestResources{<FIELDS>mapper: followed(options.Mapper),"},
		{"restMapper: options.Mapper,", "restMapper: resources.mapper,"},
		{"apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)", "apiutil.IsObjectNamespaced(obj, c.scheme, c.typedClient.resources.mapper)"},
	}},
	{file: watchFile, changes: []change{{"w.<BASE>.typedClient.resources.getResource(obj)", ""}}},
	// The client of a namespace asks the client that it wraps for every scope. Before
	// v0.22 it asks nowhere else.
	{file: namespacedFile, since: "v0.22", changes: []change{
		{"apiutil.IsGVKNamespaced(gvk, n.RESTMapper())", "n.IsObjectNamespaced(ofKind(gvk))"},
		{"\n\t\"" + Module + "/" + apiutilDir + "\"\n", "\n"},
	}},
	// An informer lists and watches through a type of ours. The functions of a ListWatch
	// take a context since v0.21.
	{file: informersFile, changes: []change{
		{"Informers{<FIELDS>mapper: options.Mapper,", "Informers{<FIELDS>mapper: followed(options.Mapper),"},
		{"ip.makeListWatcher(gvk, obj)", "ip.followListWatcher(gvk, obj)"},
		{"func(<PARAM>opts metav1.ListOptions) (runtime.Object, error) { ip.selector.ApplyToList(&opts) return listWatcher.List<LIST>Func(<CTX>opts)", ""},
		{"return listWatcher.WatchFunc<WATCH>(<CTX>opts)", ""},
		{"return resources.List(<ARG>, opts)", ""},
	}},
	// The reader of an informer asks the store for the scope of a kind.
	{file: readerFile, changes: []change{{
		"if c.scopeName == apimeta.RESTScopeNameRoot { key.Namespace = \"\" } storeKey := objectKeyToStoreKey(key) " +
			"// Lookup the object from the indexer cache obj, exists, err := c.indexer.GetByKey(storeKey)",
		"obj, exists, err := c.stored(key)",
	}}},
	// A cache of several namespaces follows the scope of a kind.
	{file: namespaceFile, changes: []change{{"return &multiNamespaceCache{<FIELDS>}", "return followNamespaces(&multiNamespaceCache{<FIELDS>})"}}},
	// The handler of owners uses the last known scope of a kind that is gone,
	// because it needs the scope for each event of each object that has such an
	// owner.
	{file: ownerFile, changes: []change{
		{"enqueueRequestForOwner[object]{<FIELDS>mapper: mapper,", `enqueueRequestForOwner[object]{<FIELDS>mapper: follow.New(mapper, ""),`},
		{`logf "` + Module + `/pkg/internal/log"`, `"` + Module + "/pkg/internal/follow\"\nlogf \"" + Module + `/pkg/internal/log"`},
	}},
}
