// SPDX-License-Identifier: Apache-2.0

package tree

import "go/ast"

const (
	cacheDir      = "pkg/cache"
	informersFile = cacheDir + "/internal/informers.go"
	readerFile    = cacheDir + "/internal/cache_reader.go"
	namespaceFile = cacheDir + "/multi_namespace_cache.go"
	sourceFile    = "pkg/internal/source/kind.go"
)

// keepInformersFresh edits upstream's informers, which keep the resource and the
// scope of a kind for as long as they live.
func keepInformersFresh(d *Draft) error {
	keys := map[string][]string{}
	if err := d.edit(informersFile, func(s *source) (err error) {
		keys, err = s.editInformers()
		return err
	}); err != nil {
		return err
	}
	if err := d.edit(readerFile, (*source).editReader); err != nil {
		return err
	}
	if err := d.edit(namespaceFile, (*source).editNamespaces); err != nil {
		return err
	}
	if err := d.edit(sourceFile, (*source).editKindSource); err != nil {
		return err
	}
	if err := d.edit(ownerFile, (*source).editOwnerHandler); err != nil {
		return err
	}
	return d.putTemplates(keys, map[string]string{
		handlerDir + "/handler_follow.go":               "handler_follow.go",
		handlerDir + "/handler_follow_test.go":          "handler_follow_test.go",
		cacheDir + "/internal/informers_follow.go":      "informers_follow.go",
		cacheDir + "/internal/informers_follow_test.go": "informers_follow_test.go",
		cacheDir + "/multi_namespace_follow_test.go":    "multi_namespace_follow_test.go",
		cacheDir + "/multi_namespace_follow.go":         "multi_namespace_follow.go",
	})
}

// editInformers has an informer list and watch through a type of ours. It returns
// how this release writes a cache.ListWatch.
func (s *source) editInformers() (map[string][]string, error) {
	if err := s.putElement("Informers", "mapper", "options.Mapper", "followed(options.Mapper)"); err != nil {
		return nil, err
	}
	made, err := one(s, s.file, "a call ip.makeListWatcher(gvk, obj)", func(call *ast.CallExpr) bool {
		return s.text(call) == "ip.makeListWatcher(gvk, obj)"
	})
	if err != nil {
		return nil, err
	}
	s.put(made.Fun, "ip.followListWatcher")
	if _, err := s.method("ip *Informers", "makeListWatcher"); err != nil {
		return nil, err
	}
	return s.listWatchForm()
}

// listWatchForm returns how the functions of a cache.ListWatch are called here, and
// whether they take a context.
func (s *source) listWatchForm() (map[string][]string, error) {
	calls := func(name string) bool {
		_, err := one(s, s.file, "", func(call *ast.CallExpr) bool { return s.text(call.Fun) == "listWatcher."+name })
		return err == nil
	}
	switch {
	case calls("ListWithContextFunc") && calls("WatchFuncWithContext"):
		return map[string][]string{
			"LISTFIELD": {"ListWithContextFunc"}, "WATCHFIELD": {"WatchFuncWithContext"},
			"CTXPARAM": {"ctx context.Context,"}, "CTXARG": {"ctx"}, "CTXUSE": {"ctx,"}, "CTXBACK": {"ctx"},
		}, nil
	case calls("ListFunc") && calls("WatchFunc"):
		return map[string][]string{
			"LISTFIELD": {"ListFunc"}, "WATCHFIELD": {"WatchFunc"},
			"CTXPARAM": {""}, "CTXARG": {"ip.ctx"}, "CTXUSE": {""}, "CTXBACK": {"context.Background()"},
		}, nil
	}
	return nil, s.unexpected("call of listWatcher.ListWithContextFunc or listWatcher.ListFunc, and the same for Watch")
}

// editReader has the reader of an informer ask the store for the scope of a kind.
func (s *source) editReader() error {
	get, err := s.method("c *CacheReader", "Get")
	if err != nil {
		return err
	}
	scope, err := one(s, get, "if c.scopeName == apimeta.RESTScopeNameRoot { key.Namespace = \"\" }", func(branch *ast.IfStmt) bool {
		return s.returns(branch, "c.scopeName == apimeta.RESTScopeNameRoot", `key.Namespace = ""`)
	})
	if err != nil {
		return err
	}
	key, err := one(s, get, "storeKey := objectKeyToStoreKey(key)", func(assign *ast.AssignStmt) bool {
		return s.text(assign) == "storeKey := objectKeyToStoreKey(key)"
	})
	if err != nil {
		return err
	}
	s.replace(s.offset(scope.Pos()), s.offset(key.End()), "storeKey := c.storeKey(key)")
	return nil
}

// editNamespaces has a cache of several namespaces keep to the informers that a
// kind had at first.
func (s *source) editNamespaces() error {
	if err := s.putElement("multiNamespaceCache", "RESTMapper", "restMapper", "atHome(restMapper)"); err != nil {
		return err
	}
	cluster, err := one(s, s.file, "clusterCache = newCache(*globalConfig, corev1.NamespaceAll)", func(assign *ast.AssignStmt) bool {
		return s.text(assign) == "clusterCache = newCache(*globalConfig, corev1.NamespaceAll)"
	})
	if err != nil {
		return err
	}
	s.wrap(cluster.Rhs[0], "confined(", ", namespaces)")
	for _, read := range []struct{ method, obj, call string }{
		{"Get", "obj", "Get(ctx, key, obj, opts...)"},
		{"List", "list", "List(ctx, list, opts...)"},
	} {
		f, err := s.method("c *multiNamespaceCache", read.method)
		if err != nil {
			return err
		}
		scope, err := one(s, f, "apiutil.IsObjectNamespaced in "+read.method, func(assign *ast.AssignStmt) bool {
			return s.text(assign) == "isNamespaced, err := apiutil.IsObjectNamespaced("+read.obj+", c.Scheme, c.RESTMapper)"
		})
		if err != nil {
			return err
		}
		s.insert(s.offset(scope.Pos()), "if cache := c.unsplit("+read.obj+"); cache != nil {\n\t\treturn cache."+read.call+"\n\t}\n\n\t")
	}
	return nil
}

// editKindSource has a controller that waits for its CRD look for it often enough
// to begin within 5 seconds.
func (s *source) editKindSource() error {
	start, err := s.method("ks *Kind[object, request]", "Start")
	if err != nil {
		return err
	}
	poll, err := one(s, start, "wait.PollUntilContextCancel(ctx, 10*time.Second, true, ...)", func(call *ast.CallExpr) bool {
		return s.text(call.Fun) == "wait.PollUntilContextCancel" && len(call.Args) == 4 && s.text(call.Args[1]) == "10*time.Second"
	})
	if err != nil {
		return err
	}
	s.put(poll.Args[1], "4*time.Second")
	return nil
}
