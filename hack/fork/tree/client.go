// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go/ast"
	"path"
	"slices"
)

const (
	clientDir  = "pkg/client"
	clientFile = clientDir + "/client_rest_resources.go"
)

// keepClientFresh edits upstream's client, which keeps a mapping of its own for
// each kind it has met, for good, and which discovers with its lock held.
func keepClientFresh(d *Draft) error {
	upstream, ok := d.Files[clientFile]
	if !ok {
		return missing(clientFile)
	}
	edited, maps, err := editClient(upstream.Data)
	if err != nil {
		return err
	}
	d.Files[clientFile] = File{Data: edited, Exec: upstream.Exec}
	for _, name := range []string{
		"client_rest_resources_generation.go",
		"client_rest_resources_generation_test.go",
		"client_rest_resources_kept_test.go",
		"client_rest_resources_server_test.go",
	} {
		data, err := template(name, map[string][]string{"MAPS": maps})
		if err != nil {
			return err
		}
		if err := d.put(path.Join(clientDir, name), data); err != nil {
			return err
		}
	}
	return nil
}

// editClient returns the edited file and the names of the maps that it keeps
// mappings in.
func editClient(src []byte) (edited []byte, maps []string, err error) {
	s, err := parseSource(clientFile, src)
	if err != nil {
		return nil, nil, err
	}
	resources, err := s.clientResources()
	if err != nil {
		return nil, nil, err
	}
	get, err := s.clientGet(resources.maps)
	if err != nil {
		return nil, nil, err
	}
	s.editClientResources(resources)
	s.editClientGet(get)
	edited, err = s.edited()
	return edited, resources.maps, err
}

// clientResources are the fields of clientRestResources that matter.
type clientResources struct {
	maps []string
	mu   *ast.Field
}

func (s *source) clientResources() (*clientResources, error) {
	fields, err := s.structType("clientRestResources")
	if err != nil {
		return nil, err
	}
	found, mapper := &clientResources{}, false
	for _, field := range fields.Fields.List {
		for _, name := range field.Names {
			kind, isMap := field.Type.(*ast.MapType)
			switch declared := name.Name + " " + s.text(field.Type); {
			case isMap && s.text(kind.Value) == "*resourceMeta":
				found.maps = append(found.maps, name.Name)
			case isMap:
				return nil, s.unexpected("use that the tool knows for the map %s of clientRestResources", name.Name)
			case declared == "mapper meta.RESTMapper":
				mapper = true
			case declared == "mu sync.RWMutex":
				found.mu = field
			}
		}
	}
	switch {
	case len(found.maps) == 0:
		return nil, s.unexpected("map to *resourceMeta in clientRestResources")
	case found.mu == nil:
		return nil, s.unexpected("field \"mu sync.RWMutex\" in clientRestResources")
	case !mapper:
		return nil, s.unexpected("field \"mapper meta.RESTMapper\" in clientRestResources")
	}
	return found, nil
}

func (s *source) editClientResources(found *clientResources) {
	s.insert(s.lineEnd(found.mu.End()), "\n\n"+
		"\t// generation is the mapper's that what is kept belongs to; guarded by mu\n"+
		"\tgeneration uint64")
}

// clientGet are the statements of getResource that matter, in their order.
type clientGet struct {
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
	g, body := &clientGet{}, get.Body.List
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

// loads tells whether stmt is "r, known := m[k]", m being one of the maps or a
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

// returns tells whether stmt is "if cond { body }".
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
	s.insert(s.above(g.rlock), ""+
		"// This comes before the lookup, so that what is kept is never older than its generation.\n"+
		"\tgeneration := c.mapperGeneration()\n\n\t")
	s.insert(s.lineEnd(g.load.End()), "\n\tknown = known && c.generation == generation")
	found := g.known.(*ast.IfStmt).Body.List[0]
	s.replace(s.offset(found.Pos()), s.offset(found.End()), "return c.current(r)")
	s.replace(s.offset(g.lock.Pos()), s.offset(g.lookup.Pos()), ""+
		"// without the lock: discovery may take its time, and other kinds need not wait for it\n\t")
	s.insert(s.offset(g.store.Pos()), "c.mu.Lock()\n\tdefer c.mu.Unlock()\n\tc.keepFor(generation)\n\t")
}
