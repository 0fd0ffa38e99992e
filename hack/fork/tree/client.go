// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"regexp"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/source"
)

const (
	clientDir      = "pkg/client"
	clientFile     = clientDir + "/client_rest_resources.go"
	fieldsFile     = clientDir + "/client.go"
	watchFile      = clientDir + "/watch.go"
	namespacedFile = clientDir + "/namespaced_client.go"
)

// clientEdits are about the mappings in upstream's client. It keeps the mapping of
// each kind for ever, and holds its lock during discovery.
var clientEdits = []edit{
	{file: clientFile, do: lookUpUnlocked},
	// The client sends its requests through types of ours. If a kind is gone, it
	// takes the last known scope of the kind: upstream's mapper never forgets a
	// kind.
	{file: fieldsFile, do: wrapRequesters, adds: []string{clientDir + "/client_mappers.go", clientDir + "/client_mappers_test.go"}, changes: []change{
		{"newClient", "if options.HTTPClient == nil {", "ownClient := options.HTTPClient == nil\n\tif ownClient {"},
		{"newClient", "apiutil.NewDynamicRESTMapper(config, options.HTTPClient)", "mapperOf(config, options.HTTPClient, ownClient)"},
		{"clientRestResources{", "mapper: options.Mapper", "mapper: followed(options.Mapper)"},
		{"metadataClient{", "restMapper: options.Mapper", "restMapper: resources.mapper"},
		{"(c *client) IsObjectNamespaced", "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)", "apiutil.IsObjectNamespaced(obj, c.scheme, c.typedClient.resources.mapper)"},
	}},
	{file: watchFile, do: followWatch},
	// The client of a namespace asks the client that it wraps for every scope. Before
	// v0.22 it asks nowhere else.
	{file: namespacedFile, since: "v0.22", changes: []change{
		{"", "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())", "n.IsObjectNamespaced(ofKind(gvk))"},
		{"", `"` + Module + "/" + apiutilDir + `"`, ""},
	}},
}

// getter is the method by which the client finds what it keeps of a kind.
const getter = "(c *clientRestResources) getResource"

// getterShape is the method as the tool knows it: nothing but the lookup happens
// with the lock held.
const getterShape = `func ` + getter + `(obj <type>) (*resourceMeta, error) {
…
	c.mu.RLock()
…
	r, known := <entry>
…
	c.mu.RUnlock()
…
	if known {
		return r, nil
	}
…
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err = c.newResource(<kind>)
	if err != nil {
		return nil, err
	}
	<entry> = r
	return r, err
}`

// lookUpUnlocked makes the client check that what it keeps is still true, and do
// discovery without its lock. It notes the names of the maps with mappings, and how
// the parameter of the method is declared.
func lookUpUnlocked(f *source.File, noted keys) {
	maps := clientMaps(f)
	holes := f.Shape(getter, getterShape)
	if f.Err() != nil {
		return
	}
	entry := holes[1]
	from, _, _ := strings.Cut(entry, "[")
	text := f.Text(getter)
	if entry != holes[3] || strings.Count(text, "c.mu.") != 4 || !slices.ContainsFunc(maps, func(name string) bool {
		return from == "c."+name || strings.Contains(text, "\n\t"+from+" := c."+name+"\n")
	}) {
		f.Unexpected("getResource that loads and stores %q, which is of a map of its own, and locks nowhere else", entry)
	}
	f.Change(getter, "if known {\n\t\treturn r, nil", "if known {\n\t\treturn c.current(r)")
	f.Remove(getter, "defer c.mu.Unlock()")
	f.Change(getter, "c.mu.Lock()", "// without the lock: discovery may take its time, and other kinds need not wait for it")
	f.Change(getter, entry+" = r", "c.mu.Lock()\n\tdefer c.mu.Unlock()\n\t"+entry+" = r")
	noted["MAPS"], noted["OBJ"] = maps, []string{"obj " + holes[0]}
}

// mapField matches a field that is a map: its names, and the type of the values.
var mapField = regexp.MustCompile(`(?m)^\t(\w+(?:, \w+)*)\s+map\[[\w.]+\](.*)$`)

// clientMaps checks the fields of the client's cache that matter, and returns its
// maps.
func clientMaps(f *source.File) (maps []string) {
	const typeName = "clientRestResources"
	for _, field := range mapField.FindAllStringSubmatch(f.Text(typeName), -1) {
		if field[2] != "*resourceMeta" || strings.Contains(field[1], ",") {
			f.Unexpected("use that the tool knows for the map %s of %s", strings.TrimSpace(field[0]), typeName)
		}
		maps = append(maps, field[1])
	}
	if len(maps) == 0 {
		f.Unexpected("map to *resourceMeta in %s", typeName)
	}
	f.Has(typeName, "mu sync.RWMutex")
	f.Has(typeName, "mapper meta.RESTMapper")
	return maps
}

func wrapRequesters(f *source.File, _ keys) {
	for _, r := range requesters {
		f.Change("client", r.name+" "+r.name, r.name+" "+following(r.name))
		f.Wrap("", r.name+"{", following(r.name)+"{", "}")
	}
}

// followWatch makes way for a Watch of ours. It notes how its receiver is led to
// the client.
func followWatch(f *source.File, noted keys) {
	f.Change("(w *watchingClient) Watch", "Watch(ctx context.Context,", "watchOnce(ctx context.Context,")
	used := f.Either("w.base.typedClient.resources", "w.client.typedClient.resources")
	noted["BASE"] = []string{strings.TrimSuffix(strings.TrimPrefix(used, "w."), ".typedClient.resources")}
}
