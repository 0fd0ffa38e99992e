// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// programsEnv names a folder with NAME-stock and NAME-fork, made by someone who
// has other forks: hack/stage.
const programsEnv = "FRESHMAPPER_E2E_PROGRAMS"

// buildBoth builds testdata/consumers/NAME as it stands, and again in a copy after
// hack/fork was there. It returns the paths of the programs.
func buildBoth(ctx context.Context, t *testing.T, name string) (stock, fork string) {
	t.Helper()
	if built := os.Getenv(programsEnv); built != "" {
		return filepath.Join(built, name+"-stock"), filepath.Join(built, name+"-fork")
	}
	dir := t.TempDir()
	stock, fork = filepath.Join(dir, name+"-stock"), filepath.Join(dir, name+"-fork")
	// Some import the fork's API, and have another way for stock.
	runGo(ctx, t, filepath.Join(root, "testdata/consumers", name), toBuild(stock, "-tags", "stock")...)
	copied := copyOf(t, name)
	runGo(ctx, t, root, "run", "./hack/fork", "-into", copied)
	runGo(ctx, t, copied, toBuild(fork)...)
	return stock, fork
}

// buildProvider builds testdata/consumers/NAME in a copy that takes the API of the
// fork from this repository's own module instead, with controller-runtime as it is.
// The import is in FILE. It returns the path of the program.
func buildProvider(ctx context.Context, t *testing.T, name, file string) string {
	t.Helper()
	const ours = "github.com/freshmapper/freshmapper"
	copied, binary := copyOf(t, name), filepath.Join(t.TempDir(), name+"-provider")
	file = filepath.Join(copied, file)
	text, err := os.ReadFile(file)
	must(t, err)
	changed := strings.Replace(string(text), `"`+tree.Module+`/pkg/client/apiutil"`, `"`+ours+`/apiutil"`, 1)
	must(t, os.WriteFile(file, []byte(changed), 0o644))
	absolute, err := filepath.Abs(root)
	must(t, err)
	runGo(ctx, t, copied, "mod", "edit", "-require="+ours+"@v0.0.0", "-replace="+ours+"="+absolute)
	runGo(ctx, t, copied, "mod", "tidy")
	runGo(ctx, t, copied, toBuild(binary)...)
	return binary
}

// copyOf copies testdata/consumers/NAME.
func copyOf(t *testing.T, name string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), name)
	must(t, os.CopyFS(copied, os.DirFS(filepath.Join(root, "testdata/consumers", name))))
	return copied
}

// toBuild are the arguments of a go command that builds a program. Unlike go build, go run
// keeps what it has linked: seconds of each program.
func toBuild(binary string, flags ...string) []string {
	return append(append([]string{"run"}, flags...), "-exec", "cp", ".", binary)
}

// runGo runs the go command.
func runGo(ctx context.Context, t *testing.T, dir string, args ...string) {
	t.Helper()
	_, err := proc.Output(ctx, dir, []string{"GOWORK=off"}, append([]string{"go"}, args...)...)
	must(t, err)
}
