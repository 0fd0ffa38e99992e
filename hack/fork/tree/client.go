// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go/ast"
	"slices"
	"strings"
)

const (
	clientDir  = "pkg/client"
	clientFile = clientDir + "/client_rest_resources.go"
)

// keepClientFresh edits upstream's client, which keeps a mapping of its own for
// each kind it has met, for good, and which discovers with its lock held.
func keepClientFresh(d *Draft) error {
	keys := map[string][]string{}
	if err := d.edit(clientFile, func(s *source) (err error) {
		keys["MAPS"], keys["OBJ"], err = s.editClient()
		return err
	}); err != nil {
		return err
	}
	if err := d.edit(fieldsFile, (*source).editClientFields); err != nil {
		return err
	}
	if err := keepNamespacedClientFresh(d); err != nil {
		return err
	}
	if err := d.edit(clientDir+"/watch.go", func(s *source) (err error) {
		keys["BASE"], err = s.editClientWatch()
		return err
	}); err != nil {
		return err
	}
	requests, err := d.followingRequests()
	if err != nil {
		return err
	}
	if err := d.put(clientDir+"/client_follow_requests.go", requests); err != nil {
		return err
	}
	return d.putTemplates(keys, map[string]string{
		"pkg/internal/follow/follow.go":                     "follow.go",
		"pkg/internal/follow/follow_test.go":                "follow_test.go",
		clientDir + "/client_follow_test.go":                "client_follow_test.go",
		clientDir + "/client_follow.go":                     "client_follow.go",
		clientDir + "/client_rest_resources_follow_test.go": "client_rest_resources_follow_test.go",
		clientDir + "/client_rest_resources_kept_test.go":   "client_rest_resources_kept_test.go",
		clientDir + "/client_rest_resources_server_test.go": "client_rest_resources_server_test.go",
	})
}

// editClient edits the client's cache. It returns the names of the maps that it
// keeps mappings in, and how the parameter of getResource is declared.
func (s *source) editClient() (maps, obj []string, err error) {
	maps, err = s.clientResources()
	if err != nil {
		return nil, nil, err
	}
	get, err := s.clientGet(maps)
	if err != nil {
		return nil, nil, err
	}
	s.editClientGet(get)
	return maps, []string{s.text(get.obj)}, nil
}

// clientResources returns the maps of clientRestResources, after a look at its
// other fields that matter.
func (s *source) clientResources() (maps []string, err error) {
	fields, err := s.structType("clientRestResources")
	if err != nil {
		return nil, err
	}
	mu, mapper := false, false
	for _, field := range fields.Fields.List {
		for _, name := range field.Names {
			kind, isMap := field.Type.(*ast.MapType)
			switch declared := name.Name + " " + s.text(field.Type); {
			case isMap && s.text(kind.Value) == "*resourceMeta":
				maps = append(maps, name.Name)
			case isMap:
				return nil, s.unexpected("use that the tool knows for the map %s of clientRestResources", name.Name)
			case declared == "mapper meta.RESTMapper":
				mapper = true
			case declared == "mu sync.RWMutex":
				mu = true
			}
		}
	}
	switch {
	case len(maps) == 0:
		return nil, s.unexpected("map to *resourceMeta in clientRestResources")
	case !mu:
		return nil, s.unexpected("field \"mu sync.RWMutex\" in clientRestResources")
	case !mapper:
		return nil, s.unexpected("field \"mapper meta.RESTMapper\" in clientRestResources")
	}
	return maps, nil
}

// clientGet are the statements of getResource that matter, in their order.
type clientGet struct {
	obj                         *ast.Field // the parameter
	rlock, load, runlock, known ast.Stmt
	lock, unlock                ast.Stmt
	lookup, failed, store, done ast.Stmt
}

// clientGet finds them, and makes sure that nothing but the lookup happens
// between the locking and the end, and that no other statement uses the lock.
func (s *source) clientGet(maps []string) (*clientGet, error) {
	get, err := s.method("c *clientRestResources", "getResource")
	if err != nil {
		return nil, err
	}
	if get.Type.Params.NumFields() != 1 || !strings.HasPrefix(s.text(get.Type.Params.List[0]), "obj ") {
		return nil, s.unexpected("getResource whose one parameter is obj")
	}
	g, body := &clientGet{obj: get.Type.Params.List[0]}, get.Body.List
	entry := "" // how the kind's place in the map is written
	steps := []struct {
		stmt *ast.Stmt
		want string
		is   func(ast.Stmt) bool
	}{
		{&g.rlock, "c.mu.RLock()", nil},
		{&g.load, "r, known := <map>[<key>]", func(stmt ast.Stmt) (is bool) {
			entry, is = s.loads(stmt, body, maps)
			return is
		}},
		{&g.runlock, "c.mu.RUnlock()", nil},
		{&g.known, "if known { return r, nil }", func(stmt ast.Stmt) bool { return s.returns(stmt, "known", "return r, nil") }},
		{&g.lock, "c.mu.Lock()", nil},
		{&g.unlock, "defer c.mu.Unlock()", nil},
		{&g.lookup, "r, err = c.newResource(...)", s.looksUp},
		{&g.failed, "if err != nil { return nil, err }", func(stmt ast.Stmt) bool { return s.returns(stmt, "err != nil", "return nil, err") }},
		{&g.store, "<map>[<key>] = r", func(stmt ast.Stmt) bool { return s.text(stmt) == entry+" = r" }},
		{&g.done, "return r, err", nil},
	}
	at := 0
	for _, step := range steps {
		is := step.is
		if is == nil {
			is = func(stmt ast.Stmt) bool { return s.text(stmt) == step.want }
		}
		n := slices.IndexFunc(body[at:], is)
		if n < 0 {
			return nil, s.unexpected("statement %q where getResource is expected to have it", step.want)
		}
		*step.stmt = body[at+n]
		at += n + 1
	}
	const tail = 6 // from lock to done
	if at != len(body) || body[at-tail] != g.lock || s.locks(get) != 4 {
		return nil, s.unexpected("getResource that ends by locking, looking up and storing, and locks nowhere else")
	}
	return g, nil
}

// loads reports whether stmt is "r, known := m[k]", m being one of the maps or a
// variable that is set to one, and returns "m[k]".
func (s *source) loads(stmt ast.Stmt, body []ast.Stmt, maps []string) (string, bool) {
	assign, ok := stmt.(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 2 || len(assign.Rhs) != 1 || s.text(assign.Lhs[0]) != "r" || s.text(assign.Lhs[1]) != "known" {
		return "", false
	}
	entry, ok := assign.Rhs[0].(*ast.IndexExpr)
	if !ok {
		return "", false
	}
	is := func(text string) bool {
		return slices.ContainsFunc(maps, func(name string) bool { return text == "c."+name })
	}
	from := s.text(entry.X)
	chosen := slices.ContainsFunc(body, func(stmt ast.Stmt) bool {
		choice, ok := stmt.(*ast.AssignStmt)
		return ok && len(choice.Lhs) == 1 && s.text(choice.Lhs[0]) == from && is(s.text(choice.Rhs[0]))
	})
	return s.text(entry), is(from) || chosen
}

// returns reports whether stmt is "if cond { body }".
func (s *source) returns(stmt ast.Stmt, cond, body string) bool {
	branch, ok := stmt.(*ast.IfStmt)
	return ok && branch.Init == nil && branch.Else == nil && s.text(branch.Cond) == cond &&
		len(branch.Body.List) == 1 && s.text(branch.Body.List[0]) == body
}

func (s *source) looksUp(stmt ast.Stmt) bool {
	assign, ok := stmt.(*ast.AssignStmt)
	if !ok || len(assign.Lhs) != 2 || len(assign.Rhs) != 1 || s.text(assign.Lhs[0]) != "r" || s.text(assign.Lhs[1]) != "err" {
		return false
	}
	call, ok := assign.Rhs[0].(*ast.CallExpr)
	return ok && s.text(call.Fun) == "c.newResource"
}

// locks counts the uses of the lock.
func (s *source) locks(f *ast.FuncDecl) int {
	n := 0
	ast.Inspect(f, func(node ast.Node) bool {
		if selected, ok := node.(*ast.SelectorExpr); ok && s.text(selected) == "c.mu" {
			n++
		}
		return true
	})
	return n
}

func (s *source) editClientGet(g *clientGet) {
	found := g.known.(*ast.IfStmt).Body.List[0]
	s.replace(s.offset(found.Pos()), s.offset(found.End()), "return c.current(r)")
	s.replace(s.offset(g.lock.Pos()), s.offset(g.lookup.Pos()), ""+
		"// without the lock: discovery may take its time, and other kinds need not wait for it\n\t")
	s.insert(s.offset(g.store.Pos()), "c.mu.Lock()\n\tdefer c.mu.Unlock()\n\t")
}
