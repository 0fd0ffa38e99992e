// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go/ast"
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

// clientChanges are about the mapping of each kind that upstream's client has met,
// which it keeps for good, and for which it discovers with its lock held.
var clientChanges = []change{
	{clientFile, lookUpUnlocked},
	{fieldsFile, followRequests},
	{watchFile, followWatch},
}

func keepClientFresh(d *Draft) error {
	changes := clientChanges
	templates := []string{
		"pkg/internal/follow/follow.go", "pkg/internal/follow/follow_test.go",
		clientDir + "/client_follow.go", clientDir + "/client_follow_test.go",
		clientDir + "/client_rest_resources_follow_test.go", clientDir + "/client_rest_resources_kept_test.go",
		clientDir + "/client_rest_resources_server_test.go", clientDir + "/namespaced_client_follow_test.go",
	}
	if d.Line.Minor >= "v0.22" { // before, the client of a namespace asks for scopes nowhere but where it asks the client that it wraps
		changes = append(slices.Clone(changes), change{namespacedFile, askWrappedClient})
		templates = append(templates, clientDir+"/namespaced_client_follow.go")
	}
	requests, err := d.followingRequests()
	if err != nil {
		return err
	}
	if err := d.put(clientDir+"/client_follow_requests.go", requests); err != nil {
		return err
	}
	return d.change(changes, templates...)
}

// getter is how the client finds what it keeps of a kind.
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

// lookUpUnlocked has the client make sure that what it keeps still holds, and
// discover without its lock. It notes the names of the maps that it keeps mappings
// in, and how the parameter of the method is declared.
func lookUpUnlocked(f *source.File, noted keys) {
	maps := clientMaps(f)
	holes := f.Shape(getter, getterShape)
	if f.Err() != nil {
		return
	}
	entry := holes[1]
	from, _, _ := strings.Cut(entry, "[")
	f.Function(getter, func(fn *ast.FuncDecl) {
		text := f.Text(fn)
		if entry != holes[3] || strings.Count(text, "c.mu.") != 4 || !slices.ContainsFunc(maps, func(name string) bool {
			return from == "c."+name || strings.Contains(text, "\n\t"+from+" := c."+name+"\n")
		}) {
			f.Unexpected("getResource that loads and stores %q, which is of a map of its own, and locks nowhere else", entry)
		}
	})
	f.Change(getter, "if known {\n\t\treturn r, nil", "if known {\n\t\treturn c.current(r)")
	f.Remove(getter, "defer c.mu.Unlock()")
	f.Change(getter, "c.mu.Lock()", "// without the lock: discovery may take its time, and other kinds need not wait for it")
	f.Before(getter, entry+" = r", "c.mu.Lock()\n\tdefer c.mu.Unlock()\n\t")
	noted["MAPS"], noted["OBJ"] = maps, []string{"obj " + holes[0]}
}

// clientMaps returns the maps of the client's cache, after a look at its other
// fields that matter.
func clientMaps(f *source.File) (maps []string) {
	const typeName = "clientRestResources"
	f.FieldType(typeName, "mu", "sync.RWMutex", "sync.RWMutex")
	f.FieldType(typeName, "mapper", "meta.RESTMapper", "meta.RESTMapper")
	for _, field := range f.Fields(typeName) {
		switch kind, isMap := field.Type.(*ast.MapType); {
		case !isMap:
		case f.Text(kind.Value) != "*resourceMeta" || len(field.Names) != 1:
			f.Unexpected("use that the tool knows for the map %s of %s", f.Text(field), typeName)
		default:
			maps = append(maps, field.Names[0].Name)
		}
	}
	if len(maps) == 0 {
		f.Unexpected("map to *resourceMeta in %s", typeName)
	}
	return maps
}

// followRequests has the client send its requests through types of ours, and tell
// the scope of a kind from what it knew last, if the kind is gone: upstream's
// mapper never forgets one.
func followRequests(f *source.File, _ keys) {
	f.Value("clientRestResources", "mapper", "options.Mapper", "followed(options.Mapper)")
	f.Value("metadataClient", "restMapper", "options.Mapper", "resources.mapper")
	for _, r := range requesters {
		f.FieldType("client", r.name, r.name, following(r.name))
		f.Wrap("", r.name+"{", following(r.name)+"{", "}")
	}
	f.Change("(c *client) IsObjectNamespaced", "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)", "apiutil.IsObjectNamespaced(obj, c.scheme, c.typedClient.resources.mapper)")
}

// followWatch makes way for a Watch of ours. It notes how its receiver is led to
// the client.
func followWatch(f *source.File, noted keys) {
	f.Rename("(w *watchingClient) Watch", "watchOnce")
	used := f.Either("w.base.typedClient.resources", "w.client.typedClient.resources")
	noted["BASE"] = []string{strings.TrimSuffix(strings.TrimPrefix(used, "w."), ".typedClient.resources")}
}

// askWrappedClient has the client of a namespace ask the client that it wraps for
// every scope, and list again if the scope was not what it took it for. The first
// releases of v0.22 list in the namespace whatever the scope.
func askWrappedClient(f *source.File, _ keys) {
	const list = "(n *namespacedClient) List"
	f.Function(list, func(fn *ast.FuncDecl) {
		if strings.Contains(f.Text(fn), "isNamespaceScoped, err := ") {
			f.Change(list, "n.client.List(ctx, obj, opts...)", "n.listFollowing(ctx, obj, isNamespaceScoped, opts)")
		}
	})
	f.Change("", "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())", "n.IsObjectNamespaced(ofKind(gvk))")
	f.DropImport(Module + "/" + apiutilDir)
}
