// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"fmt"
	"go/ast"
	"go/printer"
	"go/token"
	"path"
	"strings"
)

// A change is a mutation that can be made to the code. It puts text around a piece
// of a file. It is in force in a process whose environment variable MUTANT is its
// id.
type change struct {
	id                   int
	file, pkg            string // the path from the root of the repository, the name of its package
	function, kind, text string
	ordinal              int // among changes with the same text in one function, from 1
	start, end           int // the piece
	before, after        string
	pos                  token.Position // the piece, for a reader
}

// key returns a name of the change. It stays the same as long as the function keeps
// its name and package, and the text its words.
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

// finder collects changes, file by file.
type finder struct {
	changes []*change

	file, function string
	text           []byte
	fset           *token.FileSet
	parsed         *ast.File
}

func (f *finder) find() {
	first := len(f.changes)
	for _, decl := range f.parsed.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function = nameOf(fn)
			ast.Inspect(fn.Body, f.visit)
		}
	}
	seen := map[string]int{}
	for _, c := range f.changes[first:] {
		key := c.key()
		seen[key]++
		c.ordinal = seen[key]
	}
}

func nameOf(fn *ast.FuncDecl) string {
	if fn.Recv == nil {
		return fn.Name.Name
	}
	return strings.TrimPrefix(wordsOf(fn.Recv.List[0].Type), "*") + "." + fn.Name.Name
}

// wordsOf is the text of a node in one line, not too long.
func wordsOf(n ast.Node) string {
	var text strings.Builder
	if err := printer.Fprint(&text, token.NewFileSet(), n); err != nil {
		return err.Error()
	}
	words := []rune(strings.Join(strings.Fields(text.String()), " "))
	const most = 100
	if len(words) > most {
		words = append(words[:most], '…')
	}
	return string(words)
}

// textOf is the text of a node as it stands in the file.
func (f *finder) textOf(n ast.Node) string {
	return string(f.text[f.offset(n.Pos()):f.offset(n.End())])
}

func (f *finder) offset(pos token.Pos) int { return f.fset.Position(pos).Offset }

// id is that of the change that is added next; on is true in a process where it is in
// force.
func (f *finder) id() int    { return len(f.changes) + 1 }
func (f *finder) on() string { return fmt.Sprintf("mutated(%d)", f.id()) }

// add adds a change: text before and after a node. format and args describe the
// change.
func (f *finder) add(at ast.Node, kind, before, after, format string, args ...any) {
	f.addTo(at, at, kind, before, after, format, args...)
}

// addTo is add for all that is between two nodes.
func (f *finder) addTo(first, last ast.Node, kind, before, after, format string, args ...any) {
	f.changes = append(f.changes, &change{
		id: f.id(), file: f.file, pkg: f.parsed.Name.Name, function: f.function, kind: kind, text: fmt.Sprintf(format, args...),
		start: f.offset(first.Pos()), end: f.offset(last.End()), before: before, after: after, pos: f.fset.Position(first.Pos()),
	})
}

func (f *finder) visit(n ast.Node) bool {
	switch n := n.(type) {
	case *ast.GenDecl:
		return n.Tok != token.CONST
	case *ast.IfStmt:
		f.condition("if", n.Cond)
	case *ast.ForStmt:
		if n.Cond != nil {
			f.condition("for", n.Cond)
		}
	case *ast.SwitchStmt:
		for _, clause := range n.Body.List {
			if clause := clause.(*ast.CaseClause); n.Tag == nil && len(clause.List) == 1 {
				f.condition("case", clause.List[0])
			}
		}
	case *ast.BinaryExpr:
		f.binary(n)
	case *ast.SliceExpr:
		if isNumber(n.Low) {
			f.offByOne(n.Low, n)
		}
	case *ast.CallExpr:
		f.extremum(n)
	case *ast.Ident:
		if n.Name == "true" || n.Name == "false" {
			f.add(n, kindBoolean, "(", " != "+f.on()+")", "%s exchanged", n.Name)
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

func (f *finder) condition(word string, e ast.Expr) {
	is := word + " " + wordsOf(e)
	f.add(e, kindNegated, f.on()+" != (", ")", "%s ⇒ not", is)
	f.add(e, kindConstant, "!"+f.on()+" && (", ")", "%s ⇒ false", is)
	if word != "for" { // which would not end
		f.add(e, kindConstant, f.on()+" || (", ")", "%s ⇒ true", is)
	}
}

// become maps each comparison to the one that replaces it.
var become = map[token.Token]token.Token{
	token.LSS: token.LEQ, token.LEQ: token.LSS, token.GTR: token.GEQ, token.GEQ: token.GTR,
	token.EQL: token.NEQ, token.NEQ: token.EQL, token.LAND: token.LOR, token.LOR: token.LAND,
}

func (f *finder) binary(b *ast.BinaryExpr) {
	x, y := "("+f.textOf(b.X)+")", "("+f.textOf(b.Y)+")"
	instead := func(kind, would, said string) {
		// If the change is not in force, would is not computed.
		before := fmt.Sprintf("(%[1]s && (%[2]s) || !%[1]s && (", f.on(), would)
		f.add(b, kind, before, "))", "%s ⇒ %s", wordsOf(b), said)
	}
	to, compares := become[b.Op]
	switch {
	case b.Op == token.LAND || b.Op == token.LOR:
		instead(kindOperand, y, wordsOf(b.Y))
		instead(kindOperand, x, wordsOf(b.X))
		instead(kindLogic, x+to.String()+y, to.String())
	case compares:
		instead(kindCompared, x+to.String()+y, to.String())
	}
	switch {
	case !isNumber(b.Y) || isNumber(b.X):
	case compares:
		instead(kindOffByOne, x+"+1"+b.Op.String()+y, wordsOf(b.X)+" + 1")
	default:
		f.offByOne(b.X, b)
	}
}

func isNumber(e ast.Expr) bool {
	literal, ok := e.(*ast.BasicLit)
	return ok && literal.Kind == token.INT
}

func (f *finder) offByOne(e, in ast.Expr) {
	f.add(e, kindOffByOne, fmt.Sprintf("mutatedNumber(%d, ", f.id()), ")", "%s ⇒ %s + 1", wordsOf(in), wordsOf(e))
}

func (f *finder) extremum(c *ast.CallExpr) {
	other := map[string]string{"min": "max", "max": "min"}
	if name, ok := c.Fun.(*ast.Ident); ok && other[name.Name] != "" {
		would := other[name.Name] + strings.TrimPrefix(f.textOf(c), name.Name)
		f.add(c, kindExtremum, fmt.Sprintf("mutatedChoice(%d, %s, ", f.id(), would), ")", "%s ⇒ %s", wordsOf(c), other[name.Name])
	}
}

func (f *finder) statements(list []ast.Stmt) {
	paired := -1
	for i, s := range list {
		if droppable(s) {
			f.drop(s, kindDropped, "")
		}
		if branch, ok := s.(*ast.IfStmt); ok && branch.Else == nil && i < len(list)-1 {
			// Without the return a branch that has nothing else might as well not be.
			if last := len(branch.Body.List) - 1; last >= 1 {
				if s, ok := branch.Body.List[last].(*ast.ReturnStmt); ok {
					f.drop(s, kindReturn, "if "+wordsOf(branch.Cond)+": ")
				}
			}
		}
		if i > 0 && paired != i-1 && calls(list[i-1]) && calls(s) {
			paired = i
			one := list[i-1]
			before := fmt.Sprintf("if %s { %s\n%s } else { ", f.on(), f.textOf(s), f.textOf(one))
			f.addTo(one, s, kindSwapped, before, " }", "%s; %s ⇒ exchanged", wordsOf(one), wordsOf(s))
		}
	}
}

func (f *finder) drop(s ast.Stmt, kind, where string) {
	f.add(s, kind, "if !"+f.on()+" { ", " }", "%s%s ⇒ nothing", where, wordsOf(s))
}

// droppable reports whether the statement can be left out: the code still compiles,
// and does not merely deadlock.
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
		return ok && !locks(c) && wordsOf(c.Fun) != "panic"
	}
	return false
}

func locks(c *ast.CallExpr) bool {
	name := wordsOf(c.Fun)
	return strings.HasSuffix(name, "Lock") || strings.HasSuffix(name, "Unlock")
}

// calls reports whether the order of the statement and of its neighbour may matter.
func calls(s ast.Stmt) bool {
	if _, deferred := s.(*ast.DeferStmt); deferred || !droppable(s) {
		return false
	}
	for n := range ast.Preorder(s) {
		if _, ok := n.(*ast.CallExpr); ok {
			return true
		}
	}
	return false
}
