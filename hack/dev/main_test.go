// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestWrongArgumentsAreRefused(t *testing.T) {
	for _, words := range []string{"", "dance", "sum", "sum a b c", "envtest", "envtest newest", "envtest legacy-store"} {
		args := append([]string{t.TempDir()}, strings.Fields(words)...)
		if err := dispatch(context.Background(), args, io.Discard, io.Discard); !errors.Is(err, errUsage) {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// The last line counts, and a run in which anything failed fails.
func TestSumSaysWhetherAllIsWell(t *testing.T) {
	const (
		passes = `{"Action":"pass","Package":"p","Test":"TestA"}` + "\n"
		skips  = `{"Action":"output","Package":"p","Test":"TestB","Output":"    b_test.go:1: no moon\n"}` + "\n" + `{"Action":"skip","Package":"p","Test":"TestB"}` + "\n"
		fails  = `{"Action":"fail","Package":"p","Test":"TestC"}` + "\n"
		begins = `{"Action":"run","Package":"p","Test":"TestD"}` + "\n"
	)
	tests := map[string]struct {
		files map[string]string
		early []string
		want  string // the end
	}{
		"well":         {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes, "a1.2.json": "go: warned\n" + skips, "b1.part": "two\t0\t0\n"}, nil, "skipped: p TestB: b_test.go:1: no moon\n\n1 passed, 0 failed, 1 skipped; all 2 parts are ok\n"},
		"a test":       {map[string]string{"a1.part": "one\t1\t7\n", "a1.1.json": passes + fails}, nil, "FAILED: p TestC\n\n1 passed, 1 failed, 0 skipped; FAILED: one\n"},
		"no status":    {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes + begins}, nil, "1 passed, 1 failed, 0 skipped; tests FAILED\n"},
		"no test":      {map[string]string{"a1.part": "one\t2\t7\n", "b1.part": "two\t0\t7\n", "c1.part": "three\t3\t7\n"}, nil, "0 passed, 0 failed, 0 skipped; FAILED: one; three\n"},
		"a slip":       {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": ""}, nil, "0 passed, 0 failed, 0 skipped; FAILED: one\n"},
		"a part stays": {map[string]string{"a1.part": "one\n", "a1.1.json": passes}, nil, "1 passed, 0 failed, 0 skipped; FAILED: one\n"},
		"no part":      {nil, nil, "\n0 passed, 0 failed, 0 skipped; NO PART was run\n"},
		"interrupted":  {map[string]string{"a1.part": "one\t0\t7\n", "a1.1.json": passes}, []string{"INTERRUPTED"}, "1 passed, 0 failed, 0 skipped; INTERRUPTED\n"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range test.files {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var said strings.Builder
			err := dispatch(context.Background(), append([]string{"", "sum", dir}, test.early...), &said, io.Discard)
			if (err == nil) != (name == "well") || !strings.HasSuffix(said.String(), test.want) {
				t.Errorf("%v\n%s", err, &said)
			}
		})
	}
}
