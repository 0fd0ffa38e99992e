// SPDX-License-Identifier: Apache-2.0

package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// Every function of the server in memory that makes a fault is in the table.
func TestEveryFault(t *testing.T) {
	files, err := filepath.Glob("../../../internal/fakeapi/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v in %v", err, files)
	}
	made := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil {
				continue
			}
			if name, ok := f.Type.Results.List[0].Type.(*ast.Ident); !ok || name.Name != "Fault" {
				continue
			}
			if made++; faults()[f.Name.Name] == nil {
				t.Errorf("%s is not in the table", f.Name.Name)
			}
		}
	}
	if made != len(faults()) {
		t.Errorf("%d faults in the table, of %d", len(faults()), made)
	}
}

// A short run finds nothing.
func TestShortRun(t *testing.T) {
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if err := run(t.Context(), 10*time.Second, 0, t.TempDir()); err != nil {
		t.Error(err)
	}
}
