// SPDX-License-Identifier: Apache-2.0

package small

import (
	"embed"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// code holds the declarations that the patches bring. They are no Go files here
// because they compile in upstream's package only.
//
//go:embed code
var code embed.FS

const spdx = "// SPDX-License-Identifier: Apache-2.0\n\n"

// putRepeated is put for code in which each line with key stands for as many
// lines as there are values.
func (f *file) putRepeated(name, anchor, key string, values []string) {
	declarations, err := parts(name)
	if err != nil {
		f.err = err
	}
	for i := range declarations {
		declarations[i].text = repeat(declarations[i].text, key, values)
	}
	f.putAll(declarations, anchor)
}

func repeat(text, key string, values []string) string {
	var out strings.Builder
	for _, line := range gotool.SplitLines(text) {
		if !strings.Contains(line, key) {
			out.WriteString(line)
			continue
		}
		for _, value := range values {
			out.WriteString(strings.ReplaceAll(line, key, value))
		}
	}
	return out.String()
}

// put brings the declarations of code/name. One that the file has already is
// replaced; new ones come behind it or, if they are first, behind the
// declaration that is called anchor.
func (f *file) put(name, anchor string) {
	declarations, err := parts(name)
	if err != nil {
		f.err = err
	}
	f.putAll(declarations, anchor)
}

func (f *file) putAll(declarations []part, anchor string) {
	for _, d := range declarations {
		f.edit(func(s tree.Source) error {
			if old := named(s, d.name); old != nil {
				s.Replace(s.Above(old), s.Offset(old.End()), d.text)
				return nil
			}
			before := named(s, anchor)
			if before == nil {
				return s.Unexpected("declaration of %s", anchor)
			}
			end := s.LineEnd(before.End())
			s.Replace(end, end, "\n\n"+d.text)
			return nil
		})
		anchor = d.name
	}
}

// part is a declaration with its comment.
type part struct{ name, text string }

// parts splits a file of code.
func parts(name string) ([]part, error) {
	data, err := code.ReadFile("code/" + name + ".go.txt")
	if err != nil {
		return nil, fmt.Errorf("our code: %w", err)
	}
	const clause = "package p\n\n"
	text := clause + strings.TrimPrefix(string(data), spdx)
	fset := token.NewFileSet()
	parsed, err := parser.ParseFile(fset, name, text, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("our code: %w", err)
	}
	var found []part
	from := len(clause)
	for _, decl := range parsed.Decls {
		end := fset.Position(decl.End()).Offset
		found = append(found, part{name: nameOf(decl), text: strings.TrimSpace(text[from:end])})
		from = end
	}
	return found, nil
}

func named(s tree.Source, name string) ast.Decl {
	for _, decl := range s.Decls() {
		if nameOf(decl) == name {
			return decl
		}
	}
	return nil
}

// nameOf is the name of a function, method or type.
func nameOf(decl ast.Decl) string {
	switch decl := decl.(type) {
	case *ast.FuncDecl:
		return decl.Name.Name
	case *ast.GenDecl:
		if spec, ok := decl.Specs[0].(*ast.TypeSpec); ok {
			return spec.Name.Name
		}
	}
	return ""
}
