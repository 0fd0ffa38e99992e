// SPDX-License-Identifier: Apache-2.0

package full

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"go/token"
	"go/types"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// A splitter splits files that need each other, declaration by declaration: a
// file then comes in several slices, and grows from one to the next.
type splitter struct {
	*graph
	src   tree.Files
	info  *types.Info
	units map[string]*unit // by name
	of    map[string][]*unit
}

// A unit is what stays together: a declaration, or a type with those of its
// methods that are in its file.
type unit struct {
	name, file string
	spans      []span
}

// span is the text of a declaration, with what is above it.
type span struct{ from, to token.Pos }

func (u *unit) lines(fset *token.FileSet) int {
	n := 0
	for _, s := range u.spans {
		n += fset.Position(s.to).Line - fset.Position(s.from).Line + 1
	}
	return n
}

// split returns the files as they are after each of several slices.
func split(stage string, group []string, files tree.Files) ([]tree.Files, error) {
	g, err := parse(inFolder(files, path.Dir(group[0])))
	if err != nil {
		return nil, err
	}
	s := &splitter{graph: g, src: files, units: map[string]*unit{}, of: map[string][]*unit{}}
	s.info, _ = g.check(slices.Sorted(maps.Keys(g.files)))
	for _, name := range group {
		s.cut(name)
	}
	needs := s.unitNeeds()
	var all []tree.Files
	var have []*unit
	room := 0
	for _, names := range ordered(slices.Sorted(maps.Keys(s.units)), needs) {
		n := 0
		for _, name := range names {
			n += s.units[name].lines(g.fset)
		}
		if n > Limit/2 {
			return nil, tooLarge(stage, n, names)
		}
		if n > room {
			all, room = append(all, tree.Files{}), Limit-overhead*len(group)
		}
		room -= n
		for _, name := range names {
			have = append(have, s.units[name])
			if all[len(all)-1][s.units[name].file], err = s.render(s.units[name].file, have); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// overhead is what a file has beside its declarations, again and again: the
// header, and imports that come and go.
const overhead = 30

func inFolder(files tree.Files, dir string) tree.Files {
	found := tree.Files{}
	for name, file := range files {
		if path.Dir(name) == dir && !isTest(name) {
			found[name] = file
		}
	}
	return found
}

// cut finds the units of a file.
func (s *splitter) cut(name string) {
	parsed := s.files[name]
	tokens := s.fset.File(parsed.Pos())
	above := s.lineAfter(tokens, parsed.Name.End())
	types := map[string]*unit{}
	for i, decl := range parsed.Decls {
		to := s.lineAfter(tokens, decl.End())
		if i == len(parsed.Decls)-1 {
			to = token.Pos(tokens.Base() + tokens.Size())
		}
		if d, ok := decl.(*ast.GenDecl); ok && d.Tok == token.IMPORT {
			above = to
			continue
		}
		key := fmt.Sprintf("%s#%03d", name, i)
		u := &unit{name: key, file: name}
		if t := typeOf(decl); t != "" {
			if types[t] == nil {
				types[t] = u
			}
			u = types[t]
		}
		u.spans = append(u.spans, span{above, to})
		if s.units[u.name] == nil {
			s.units[u.name] = u
			s.of[name] = append(s.of[name], u)
		}
		above = to
	}
}

// lineAfter is where the line begins that follows a position.
func (s *splitter) lineAfter(tokens *token.File, pos token.Pos) token.Pos {
	if line := tokens.Line(pos); line < tokens.LineCount() {
		return tokens.LineStart(line + 1)
	}
	return token.Pos(tokens.Base() + tokens.Size())
}

// typeOf is the name of the type that is declared, or that a method is of.
func typeOf(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		if decl.Recv == nil {
			return ""
		}
		of := decl.Recv.List[0].Type
		if star, ok := of.(*ast.StarExpr); ok {
			of = star.X
		}
		if generic, ok := of.(*ast.IndexExpr); ok {
			of = generic.X
		}
		if ident, ok := of.(*ast.Ident); ok {
			return ident.Name
		}
	case *ast.GenDecl:
		if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok {
			return spec.Name.Name
		}
	}
	return ""
}

// at finds the unit of a position, nil if it is in a file that is not split.
func (s *splitter) unitAt(pos token.Pos) *unit {
	for _, u := range s.of[s.at(pos)] {
		for _, span := range u.spans {
			if span.from <= pos && pos < span.to {
				return u
			}
		}
	}
	return nil
}

func (s *splitter) unitNeeds() map[string][]string {
	needs := map[string][]string{}
	add := func(from, to token.Pos) {
		a, b := s.unitAt(from), s.unitAt(to)
		if a != nil && b != nil && a != b && !slices.Contains(needs[a.name], b.name) {
			needs[a.name] = append(needs[a.name], b.name)
		}
	}
	methods := map[string][]token.Pos{}
	for ident, object := range s.info.Defs {
		if fn, ok := object.(*types.Func); ok && fn.Signature().Recv() != nil {
			methods[ident.Name] = append(methods[ident.Name], ident.Pos())
		}
	}
	for ident, object := range s.info.Uses {
		if object.Pos().IsValid() {
			add(ident.Pos(), object.Pos())
		}
	}
	for name := range s.of {
		ast.Inspect(s.files[name], func(n ast.Node) bool {
			for _, where := range methods[unresolvedCall(s.info, n)] {
				add(n.Pos(), where)
			}
			return true
		})
	}
	return needs
}

// render writes a file with those of its units that are there already.
func (s *splitter) render(name string, have []*unit) (tree.File, error) {
	units := slices.DeleteFunc(slices.Clone(have), func(u *unit) bool { return u.file != name })
	if len(units) == len(s.of[name]) {
		return s.src[name], nil
	}
	var spans []span
	for _, u := range units {
		spans = append(spans, u.spans...)
	}
	slices.SortFunc(spans, func(a, b span) int { return int(a.from - b.from) })
	parsed, data := s.files[name], s.src[name].Data
	tokens := s.fset.File(parsed.Pos())
	var out bytes.Buffer
	out.Write(data[:tokens.Offset(s.lineAfter(tokens, parsed.Name.End()))])
	out.WriteString("\nimport (\n")
	for _, spec := range parsed.Imports {
		if s.imported(name, spec, spans) {
			out.WriteString("\t" + string(data[tokens.Offset(spec.Pos()):tokens.Offset(spec.End())]) + "\n")
		}
	}
	out.WriteString(")\n")
	for _, span := range spans {
		out.Write(data[tokens.Offset(span.from):tokens.Offset(span.to)])
	}
	text, err := format.Source(bytes.Replace(out.Bytes(), []byte("\nimport (\n)\n"), nil, 1))
	if err != nil {
		return tree.File{}, fmt.Errorf("split %s: %w", name, err)
	}
	return tree.File{Data: text}, nil
}

// imported reports whether what is there of a file uses an import.
func (s *splitter) imported(name string, spec *ast.ImportSpec, spans []span) bool {
	used := false
	ast.Inspect(s.files[name], func(n ast.Node) bool {
		selector, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		if ident, ok := selector.X.(*ast.Ident); ok && ident.Name == importName(spec) {
			used = used || slices.ContainsFunc(spans, func(s span) bool { return s.from <= ident.Pos() && ident.Pos() < s.to })
		}
		return true
	})
	return used
}

// importName is what a file calls a package that it imports.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	name := strings.Trim(spec.Path.Value, `"`)
	if base := path.Base(name); len(base) > 1 && base[0] == 'v' && strings.Trim(base[1:], "0123456789") == "" {
		name = path.Dir(name)
	}
	return path.Base(name)
}
