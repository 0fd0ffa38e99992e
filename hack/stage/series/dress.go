// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"errors"
	"fmt"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

const (
	boilerplate = "hack/boilerplate/boilerplate.go.txt"
	spdx        = "// SPDX-License-Identifier: Apache-2.0\n"
	goMod       = "go.mod"
	neighbour   = "pkg/client/client_rest_resources.go" // of our new files
)

// dress makes our files in a tree look like upstream's: they get the header that
// upstream keeps for its Go files, and what they import becomes a direct
// requirement of go.mod, as go mod tidy would have it. It returns a new tree.
func dress(files, upstream tree.Files) (tree.Files, error) {
	header, err := headerOf(upstream)
	if err != nil {
		return nil, err
	}
	dressed, imports := maps.Clone(files), map[string]bool{}
	for name, file := range files {
		if path.Ext(name) != ".go" || !bytes.HasPrefix(file.Data, []byte(spdx)) {
			continue
		}
		file.Data = withHeader(header, file.Data[len(spdx):])
		dressed[name] = file
		if err := collectImports(imports, name, file.Data); err != nil {
			return nil, err
		}
	}
	mod, ok := upstream[goMod]
	if !ok {
		return nil, errors.New("upstream has no go.mod")
	}
	dressed[goMod] = tree.File{Data: requireDirectly(mod.Data, imports)}
	return dressed, nil
}

// headerOf returns the header that new Go files need. In releases without a file
// for it, it comes from a Go file of upstream's.
func headerOf(upstream tree.Files) ([]byte, error) {
	header, ok := upstream[boilerplate]
	if !ok {
		file, ok := upstream[neighbour]
		text, _, end := bytes.Cut(file.Data, []byte("*/\n"))
		if !ok || !end || !bytes.HasPrefix(text, []byte("/*\nCopyright")) {
			return nil, fmt.Errorf("upstream has neither %s nor a header in %s: one of them is needed, as every new file begins with it", boilerplate, neighbour)
		}
		return slices.Concat(text, []byte("*/\n")), nil
	}
	if bytes.Contains(header.Data, []byte("YEAR")) {
		return nil, fmt.Errorf("upstream's %s wants a year: have hack/stage/series fill it in", boilerplate)
	}
	return header.Data, nil
}

// withHeader puts the header above a file, and a build constraint above that, where
// gofmt wants it if the header is no line comment.
func withHeader(header, body []byte) []byte {
	const constraint = "\n//go:build "
	if !bytes.HasPrefix(body, []byte(constraint)) {
		return slices.Concat(header, body)
	}
	line, rest, _ := bytes.Cut(body[1:], []byte("\n"))
	return slices.Concat(line, []byte("\n\n"), header, rest)
}

func collectImports(to map[string]bool, name string, src []byte) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, src, parser.ImportsOnly)
	if err != nil {
		return fmt.Errorf("parse %s: %w", name, err)
	}
	for _, spec := range file.Imports {
		imported, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return fmt.Errorf("%s: import %s: %w", name, spec.Path.Value, err)
		}
		to[imported] = true
	}
	return nil
}

// requireDirectly moves the requirements that provide imports from the block of
// indirect ones into the first block, sorted as go mod tidy sorts them.
func requireDirectly(mod []byte, imports map[string]bool) []byte {
	const indirect = " // indirect\n"
	var kept, moved []string
	for _, line := range gotool.SplitLines(string(mod)) {
		if strings.HasSuffix(line, indirect) && provides(line, imports) {
			moved = append(moved, strings.TrimSuffix(line, indirect)+"\n")
			continue
		}
		kept = append(kept, line)
	}
	for _, line := range moved {
		kept = insertRequirement(kept, line)
	}
	return []byte(strings.Join(kept, ""))
}

// provides reports whether the module of a requirement has one of the packages. A
// module with a longer path that has it is required by a line of its own, and
// upstream requires none of those indirectly.
func provides(line string, imports map[string]bool) bool {
	module := strings.Fields(line)[0]
	for imported := range imports {
		if imported == module || strings.HasPrefix(imported, module+"/") {
			return true
		}
	}
	return false
}

func insertRequirement(mod []string, line string) []string {
	inside := false
	for i, other := range mod {
		switch {
		case other == "require (\n":
			inside = true
		case inside && (other == ")\n" || other > line):
			return slices.Insert(mod, i, line)
		}
	}
	return mod
}
