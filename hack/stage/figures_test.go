// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

var figures = flag.Bool("figures", false, "measure what the texts say of stock and of each patch")

//go:embed figures.go.txt
var program string

// The figures of the texts: run it with -v -args -figures, and copy what it prints.
func TestFigures(t *testing.T) {
	if !*figures {
		t.Skip("-figures is not given")
	}
	mails := patches(t)
	dirs := []string{patched(t, nil)}
	for i := range mails {
		dirs = append(dirs, patched(t, mails[i:i+1]))
	}
	var rows [][]string
	for i, dir := range append(dirs, patched(t, mails)) {
		forktest.Write(t, dir, "figures/main.go", program)
		if err := os.CopyFS(filepath.Join(dir, "internal/fakeapi"), os.DirFS("../../internal/fakeapi")); err != nil {
			t.Fatal(err)
		}
		for j, line := range strings.Split(strings.TrimSpace(forktest.Run(t, dir, "go", "run", "-trimpath", "./figures")), "\n") {
			name, figure, _ := strings.Cut(line, "\t")
			if i == 0 {
				rows = append(rows, []string{name})
			} else if figure == rows[j][1] {
				figure = "="
			}
			rows[j] = append(rows[j], figure)
		}
	}
	fmt.Printf("\n%s, %s, %d cores, in one run\n\n| | stock | 1 | 2 | 3 | 4 | 5 | all |\n|---|---|---|---|---|---|---|---|\n",
		time.Now().Format(time.DateOnly), runtime.Version(), runtime.NumCPU())
	same := "The same for all:"
	for _, row := range rows {
		if line := strings.Join(row, " | "); strings.HasSuffix(line, " | = | = | = | = | = | =") {
			same += " " + row[0] + ";"
		} else {
			fmt.Printf("| %s |\n", line)
		}
	}
	fmt.Printf("\n%s\n", same)

	// The program of the comment, on stock and on the first patch.
	_, file, _ := strings.Cut(forktest.Text(t, "proposal", "comment-3542.md"), "```go\n")
	file, _, _ = strings.Cut(file, "```\n")
	for _, dir := range dirs[:2] {
		forktest.Write(t, dir, "pkg/client/apiutil/restmapper_3542_test.go", file)
		for _, flags := range [][]string{{"-run=^TestNewVersionOfAKnownGroup$", "-v"}, {"-run=^$", "-bench=Miss", "-benchmem"}} {
			said, _ := in(dir, append([]string{"go", "test", "-trimpath", "-count=1", "./pkg/client/apiutil"}, flags...)...)
			fmt.Printf("\n%s", said)
		}
	}
}
