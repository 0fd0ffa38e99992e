// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"go/ast"
	"go/token"
	"path"
	"slices"
	"strings"
)

// A change is one that can be made to the code. It is built in beside the code as it
// is, and comes into force in a process whose MUTANT is its number.
type change struct {
	file, function string
	kind, text     string
	ordinal        int            // among changes of the same text in one function, from 1
	build          func(id int)   // changes the syntax tree
	pos            token.Position // where it is today
}

// key names the change as long as the function stays in its package and keeps its name,
// and the text its words.
func (c *change) key() string {
	key := fmt.Sprintf("%s %s: %s", path.Dir(c.file), c.function, c.text)
	if c.ordinal > 1 {
		key += fmt.Sprintf(" (%d)", c.ordinal)
	}
	return key
}

// The kinds of changes.
const (
	kindNegated  = "condition negated"
	kindConstant = "condition made constant"
	kindCompared = "comparison shifted"
	kindLogic    = "&& and || exchanged"
	kindOperand  = "operand of && or || left out"
	kindDropped  = "statement left out"
	kindReturn   = "early return left out"
	kindSwapped  = "two calls exchanged"
	kindOffByOne = "off by one"
	kindBoolean  = "true and false exchanged"
	kindExtremum = "min and max exchanged"
)

// finder collects the changes of one file.
type finder struct {
	file, function string
	fset           *token.FileSet
	changes        []*change
}

// changesOf lists the changes that can be made to a file, in the order of its text.
func changesOf(fset *token.FileSet, file string, parsed *ast.File) []*change {
	f := &finder{file: file, fset: fset}
	for _, decl := range parsed.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = nameOf(fn)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	seen := map[string]int{}
	for _, c := range f.changes {
		key := c.key()
		seen[key]++
		c.ordinal = seen[key]
	}
	return f.changes
}

func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	receiver := fn.Recv.List[0].Type
	if star, ok := receiver.(*ast.StarExpr); ok {
		receiver = star.X
	}
	return textOf(receiver) + "." + fn.Name.Name
}

func (f *finder) add(at ast.Node, kind string, build func(id int), format string, args ...any) {
	f.changes = append(f.changes, &change{
		file: f.file, function: f.function, kind: kind, build: build,
		text: fmt.Sprintf(format, args...), pos: f.fset.Position(at.Pos()),
	})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.IfStmt:
		f.condition("if", &n.Cond)
		f.constant("if", &n.Cond, token.LOR, "true")
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition("for", &n.Cond)
		}
	case *ast.SwitchStmt:
		for _, clause := range n.Body.List {
			if clause := clause.(*ast.CaseClause); n.Tag == nil && len(clause.List) == 1 {
				f.condition("case", &clause.List[0])
				f.constant("case", &clause.List[0], token.LOR, "true")
			}
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.SliceExpr:
		if isNumber(n.Low) {
			f.offByOne(&n.Low, n)
		}
	case *ast.CallExpr:
		f.extremum(n)
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			was := n.Name
			f.add(n, kindBoolean, func(id int) { n.Name = fmt.Sprintf("(%s != mutated(%d))", was, id) }, "%s exchanged", was)
		}
	case *ast.BlockStmt:
		f.statements(n.List)
	case *ast.CaseClause:
		f.statements(n.Body)
	case *ast.CommClause:
		f.statements(n.Body)
	}
	return true
}

func (f *finder) condition(word string, at *ast.Expr) {
	f.add(*at, kindNegated, func(id int) { *at = binary(paren(*at), token.NEQ, on(id)) }, "%s %s ⇒ not", word, textOf(*at))
	f.constant(word, at, token.LAND, "false")
}

func (f *finder) constant(word string, at *ast.Expr, op token.Token, value string) {
	f.add(*at, kindConstant, func(id int) {
		if op == token.LOR {
			*at = binary(on(id), op, paren(*at))
		} else {
			*at = binary(off(id), op, paren(*at))
		}
	}, "%s %s ⇒ %s", word, textOf(*at), value)
}

// become is what a comparison becomes.
var become = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
}

func (f *finder) binary(b *ast.BinaryExpr) {
	x, y, op, text := b.X, b.Y, b.Op, textOf(b)
	// In a process where it is not in force the code is as it was.
	instead := func(would ast.Expr) func(id int) {
		return func(id int) {
			is := *b
			*b = *binary(paren(binary(on(id), token.LAND, paren(would))), token.LOR, paren(binary(off(id), token.LAND, paren(&is))))
		}
	}
	to, compares := become[op]
	if compares {
		kind := kindCompared
		if op == token.LAND || op == token.LOR {
			kind = kindLogic
			f.add(b, kindOperand, instead(y), "%s ⇒ %s", text, textOf(y))
			f.add(b, kindOperand, instead(x), "%s ⇒ %s", text, textOf(x))
		}
		f.add(b, kind, instead(binary(x, to, y)), "%s ⇒ %v", text, to)
	}
	switch {
	case !isNumber(y) || isNumber(x):
	case compares:
		f.add(b, kindOffByOne, instead(binary(binary(x, token.ADD, number(1)), op, y)), "%s ⇒ %s + 1", text, textOf(x))
	default:
		f.offByOne(&b.X, b)
	}
}

func isNumber(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Kind == token.INT
}

func (f *finder) offByOne(at *ast.Expr, in ast.Expr) {
	f.add(*at, kindOffByOne, func(id int) { *at = call("mutatedNumber", number(id), *at) }, "%s ⇒ %s + 1", textOf(in), textOf(*at))
}

func (f *finder) extremum(c *ast.CallExpr) {
	other := map[string]string{"min": "max", "max": "min"}
	if name, ok := c.Fun.(*ast.Ident); ok && other[name.Name] != "" {
		f.add(c, kindExtremum, func(id int) {
			is := *c
			*c = *call("mutatedChoice", number(id), &is, call(other[name.Name], is.Args...))
		}, "%s ⇒ %s", textOf(c), other[name.Name])
	}
}

func (f *finder) statements(list []ast.Stmt) {
	paired := -1
	for i, s := range list {
		if droppable(s) {
			f.add(s, kindDropped, func(id int) { list[i] = ifOff(id, list[i]) }, "%s ⇒ nothing", textOf(s))
		}
		if branch, ok := s.(*ast.IfStmt); ok && branch.Else == nil && i < len(list)-1 {
			f.earlyReturn(branch)
		}
		if i > 0 && paired != i-1 && calls(list[i-1]) && calls(s) {
			paired = i
			f.add(list[i-1], kindSwapped, func(id int) {
				one, two := list[i-1], list[i]
				list[i-1] = &ast.IfStmt{Cond: on(id), Body: block(two, one), Else: block(one, two)}
				list[i] = &ast.EmptyStmt{Implicit: true}
			}, "%s; %s ⇒ exchanged", textOf(list[i-1]), textOf(s))
		}
	}
}

func (f *finder) earlyReturn(branch *ast.IfStmt) {
	last := len(branch.Body.List) - 1
	if last < 1 {
		return // without the return the condition might as well be false
	}
	if s, ok := branch.Body.List[last].(*ast.ReturnStmt); ok {
		f.add(s, kindReturn, func(id int) { branch.Body.List[last] = ifOff(id, s) }, "if %s: %s ⇒ nothing", textOf(branch.Cond), textOf(s))
	}
}

// droppable reports whether the code still compiles without the statement, and
// without it is not merely a deadlock.
func droppable(s ast.Stmt) bool {
	switch s := s.(type) {
	case *ast.AssignStmt:
		return s.Tok != token.DEFINE
	case *ast.IncDecStmt, *ast.SendStmt, *ast.GoStmt:
		return true
	case *ast.DeferStmt:
		return !locks(s.Call)
	case *ast.ExprStmt:
		c, ok := s.X.(*ast.CallExpr)
		return ok && !locks(c) && textOf(c.Fun) != "panic"
	}
	return false
}

func locks(c *ast.CallExpr) bool {
	name := textOf(c.Fun)
	return strings.HasSuffix(name, "Lock") || strings.HasSuffix(name, "Unlock")
}

// calls reports whether the order of the statement and of its neighbour may matter.
func calls(s ast.Stmt) bool {
	if _, deferred := s.(*ast.DeferStmt); deferred || !droppable(s) {
		return false
	}
	found := false
	ast.Inspect(s, func(n ast.Node) bool {
		_, call := n.(*ast.CallExpr)
		found = found || call
		return !found
	})
	return found
}

// inOrder has changes that replace whole statements built last, or what is built into
// one of them later would be lost.
func inOrder(changes []*change) []int {
	var first, last []int
	for i, c := range changes {
		if c.kind == kindSwapped {
			last = append(last, i)
		} else {
			first = append(first, i)
		}
	}
	return slices.Concat(first, last)
}
