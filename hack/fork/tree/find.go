// SPDX-License-Identifier: Apache-2.0

package tree

import "go/ast"

// put replaces a node by text.
func (s *source) put(n ast.Node, text string) {
	s.replace(s.offset(n.Pos()), s.offset(n.End()), text)
}

// wrap puts text before and after a node.
func (s *source) wrap(n ast.Node, before, after string) {
	s.insert(s.offset(n.Pos()), before)
	s.insert(s.offset(n.End()), after)
}

// fieldType finds the type of a field of a struct, which must be as written in want.
func (s *source) fieldType(structName, name, want string) (ast.Expr, error) {
	found, err := s.structType(structName)
	if err != nil {
		return nil, err
	}
	for _, field := range found.Fields.List {
		for _, ident := range field.Names {
			if ident.Name == name && s.text(field.Type) == want {
				return field.Type, nil
			}
		}
	}
	return nil, s.unexpected("field %q in %s", name+" "+want, structName)
}

// one finds the one node for which is holds.
func one[T ast.Node](s *source, within ast.Node, what string, is func(T) bool) (found T, err error) {
	n := 0
	ast.Inspect(within, func(node ast.Node) bool {
		if node, ok := node.(T); ok && is(node) {
			found, n = node, n+1
		}
		return true
	})
	if n != 1 {
		return found, s.unexpected("place, or more than one, with %s", what)
	}
	return found, nil
}

// literal finds the one composite literal of a type that has elements.
func (s *source) literal(typeName string) (*ast.CompositeLit, error) {
	return one(s, s.file, "a literal "+typeName+"{...}", func(lit *ast.CompositeLit) bool {
		return lit.Type != nil && s.text(lit.Type) == typeName && len(lit.Elts) > 0
	})
}

// element finds the value of a key in a literal, which must be as written in want.
func (s *source) element(lit *ast.CompositeLit, key, want string) (ast.Expr, error) {
	for _, element := range lit.Elts {
		pair, ok := element.(*ast.KeyValueExpr)
		if ok && s.text(pair.Key) == key && s.text(pair.Value) == want {
			return pair.Value, nil
		}
	}
	return nil, s.unexpected("element %q in the literal %s{...}", key+": "+want, s.text(lit.Type))
}

// putElement replaces the value of a key in the one literal of a type.
func (s *source) putElement(typeName, key, want, text string) error {
	lit, err := s.literal(typeName)
	if err != nil {
		return err
	}
	value, err := s.element(lit, key, want)
	if err != nil {
		return err
	}
	s.put(value, text)
	return nil
}
