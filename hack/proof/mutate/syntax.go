// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/token"
	"strconv"
)

// helper is the file that each changed package gets.
const helper = `package %s

import (
	"os"
	"strconv"
)

var theMutant, _ = strconv.Atoi(os.Getenv("MUTANT"))

func mutated(id int) bool { return id == theMutant }

func mutatedChoice[T any](id int, is, would T) T {
	if mutated(id) {
		return would
	}
	return is
}

func mutatedNumber[T ~int | ~int64 | ~uint64 | ~float64](id int, n T) T {
	if mutated(id) {
		return n + 1
	}
	return n
}
`

func number(id int) ast.Expr    { return &ast.BasicLit{Kind: token.INT, Value: strconv.Itoa(id)} }
func paren(e ast.Expr) ast.Expr { return &ast.ParenExpr{X: e} }
func on(id int) ast.Expr        { return call("mutated", number(id)) }
func off(id int) ast.Expr       { return &ast.UnaryExpr{Op: token.NOT, X: on(id)} }

func call(name string, args ...ast.Expr) *ast.CallExpr {
	return &ast.CallExpr{Fun: ast.NewIdent(name), Args: args}
}

func binary(x ast.Expr, op token.Token, y ast.Expr) *ast.BinaryExpr {
	return &ast.BinaryExpr{X: x, Op: op, Y: y}
}

func block(list ...ast.Stmt) *ast.BlockStmt { return &ast.BlockStmt{List: list} }

func ifOff(id int, s ast.Stmt) ast.Stmt { return &ast.IfStmt{Cond: off(id), Body: block(s)} }
