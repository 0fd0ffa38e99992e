// SPDX-License-Identifier: Apache-2.0

package small

import (
	"embed"
	"fmt"
	"go/parser"
	"go/token"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/source"
)

// code holds the declarations that the patches bring. They are no Go files here
// because they compile in upstream's package only.
//
//go:embed code
var code embed.FS

const spdx = "// SPDX-License-Identifier: Apache-2.0\n\n"

// put adds the declarations of code/name to the file. A declaration that the file
// has already is replaced. New ones come behind the one before them or, if they are
// first, behind the declaration that is called anchor.
func (f file) put(name, anchor string) { f.putRepeated(name, anchor, "", nil) }

// putRepeated is put for code in which each line with key stands for as many
// lines as there are values.
func (f file) putRepeated(name, anchor, key string, values []string) {
	declarations, err := parts(name)
	if err != nil {
		f.Fail(err)
	}
	for _, d := range declarations {
		if key != "" {
			d.text = gotool.RepeatLines(d.text, key, values)
		}
		f.Declare(d.name, d.text, anchor)
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
		found = append(found, part{name: source.NameOf(decl), text: strings.TrimSpace(text[from:end])})
		from = end
	}
	return found, nil
}
