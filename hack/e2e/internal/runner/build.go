// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// programsEnv names a folder with NAME-stock and NAME-fork, made by someone who
// wants to show how: hack/demo.sh.
const programsEnv = "FRESHMAPPER_E2E_PROGRAMS"

const (
	controllerRuntime = "sigs.k8s.io/controller-runtime"
	ours              = "github.com/freshmapper/freshmapper"
)

// Programs are one consumer's program, built twice.
type Programs struct {
	Name        string
	Stock, Fork string // paths of binaries
	Version     string // the controller-runtime release that both are about
}

// Build builds testdata/consumers/NAME of the checkout in root, as it stands and
// again in a copy after hack/fork was there. It writes below dir, nothing else.
func Build(ctx context.Context, root, dir, name string) (*Programs, error) {
	consumer := filepath.Join(root, "testdata", "consumers", name)
	version, err := run(ctx, consumer, "list", "-m", "-f", "{{.Version}}", controllerRuntime)
	if err != nil {
		return nil, err
	}
	p := &Programs{Name: name, Version: version}
	if built := os.Getenv(programsEnv); built != "" {
		p.Stock, p.Fork = filepath.Join(built, name+"-stock"), filepath.Join(built, name+"-fork")
		return p, p.check()
	}
	p.Stock, p.Fork = filepath.Join(dir, name+"-stock"), filepath.Join(dir, name+"-fork")
	// Some import the fork's API, and have another way for stock.
	if _, err := run(ctx, consumer, "build", "-tags", "stock", "-o", p.Stock, "."); err != nil {
		return nil, err
	}
	return p, buildFork(ctx, root, consumer, filepath.Join(dir, name), p.Fork)
}

func buildFork(ctx context.Context, root, consumer, forked, binary string) error {
	if err := os.CopyFS(forked, os.DirFS(consumer)); err != nil {
		return err
	}
	if _, err := run(ctx, root, "run", "./hack/fork", "-into", forked); err != nil {
		return err
	}
	// Without the replacement both binaries would be stock, and alike.
	replaced, err := run(ctx, forked, "list", "-m", "-f", "{{with .Replace}}{{.Path}}{{end}}", controllerRuntime)
	if err != nil {
		return err
	}
	if replaced == "" {
		return fmt.Errorf("hack/fork -into left %s/go.mod without a replace for %s", forked, controllerRuntime)
	}
	_, err = run(ctx, forked, "build", "-o", binary, ".")
	return err
}

// BuildProvider builds testdata/consumers/NAME in a copy that takes the API of the
// fork from this repository's own module instead, with controller-runtime as it is. It
// returns the path of the binary.
func BuildProvider(ctx context.Context, root, dir, name string) (string, error) {
	copied, binary := filepath.Join(dir, name+"-copy"), filepath.Join(dir, name+"-provider")
	if err := os.CopyFS(copied, os.DirFS(filepath.Join(root, "testdata", "consumers", name))); err != nil {
		return "", err
	}
	if err := importOurs(copied); err != nil {
		return "", err
	}
	absolute, err := filepath.Abs(root)
	if err != nil {
		return "", err
	}
	for _, args := range [][]string{
		{"mod", "edit", "-require=" + ours + "@v0.0.0", "-replace=" + ours + "=" + absolute}, {"mod", "tidy"}, {"build", "-o", binary, "."},
	} {
		if _, err := run(ctx, copied, args...); err != nil {
			return "", err
		}
	}
	return binary, nil
}

// run runs the go command and returns what it printed.
func run(ctx context.Context, dir string, args ...string) (string, error) {
	return proc.Output(ctx, dir, []string{"GOWORK=off"}, append([]string{"go"}, args...)...)
}

// importOurs changes the import of apiutil in the program in dir.
func importOurs(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		changed := strings.Replace(string(text), `"`+controllerRuntime+`/pkg/client/apiutil"`, `"`+ours+`/apiutil"`, 1)
		if err := os.WriteFile(file, []byte(changed), 0o644); err != nil {
			return err
		}
	}
	return nil
}

func (p *Programs) check() error {
	for _, binary := range []string{p.Stock, p.Fork} {
		if _, err := os.Stat(binary); err != nil {
			return fmt.Errorf("%s is set: %w", programsEnv, err)
		}
	}
	return nil
}
