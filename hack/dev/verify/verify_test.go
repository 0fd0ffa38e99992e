// SPDX-License-Identifier: Apache-2.0

package verify

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

var (
	modules = flag.Bool("modules", false, "vet each module, and check go.mod and go.sum")
	lint    = flag.String("lint", "none", "the modules to lint: none, root or all")
)

// checkout is the folder of one.
type checkout string

// check is a check of the checkout.
type check struct {
	name string
	run  func() error
}

// A check that fails does not stop the others.
func TestCheckout(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	checks, err := checkout(root).checks(*modules, *lint)
	if err != nil {
		t.Fatal(err)
	}
	for _, check := range checks {
		t.Run(check.name, func(t *testing.T) {
			if err := check.run(); err != nil {
				t.Error(err)
			}
		})
	}
}

func (c checkout) checks(modules bool, lint string) ([]check, error) {
	files, err := c.files()
	if err != nil {
		return nil, err
	}
	all := []check{
		{"gofmt", func() error { return c.gofmt(files) }},
		{"bash", func() error { return c.bash(files) }},
		{"paths", func() error { return c.paths(files) }},
	}
	for _, module := range modulesOf(files) {
		if !modules {
			continue
		}
		if hasCode(files, module) {
			all = append(all, check{"vet/" + module, func() error { return c.run(module, "go", "vet", "-tags="+tags(module), "./...") }})
		}
		all = append(all, check{"tidy/" + module, func() error { return c.run(module, "go", "mod", "tidy", "-diff") }})
	}
	if lint == "none" {
		return all, nil
	}
	linter := []string{"go", "tool", "-modfile=" + c.path("hack/tools/go.mod"), "golangci-lint"}
	all = append(all, check{"lint/config", func() error { return c.run(".", append(linter, "config", "verify")...) }})
	for _, module := range modulesOf(files) {
		// Those in hack/envtest only start another project's main.
		if hasCode(files, module) && !strings.HasPrefix(module, "hack/envtest/") && (module == "." || lint == "all") {
			args := append(slices.Clone(linter), "run", "--allow-serial-runners", "--build-tags", tags(module), "./...")
			all = append(all, check{"lint/" + module, func() error { return c.run(module, args...) }})
		}
	}
	return all, nil
}

// tags are the build tags of a module. Examples that import the fork's API are
// built for stock controller-runtime here, which needs a tag.
func tags(module string) string {
	if strings.HasPrefix(module, "testdata/consumers/") {
		return "stock"
	}
	return ""
}

// hasCode reports whether a module does more than pin another project's program,
// as hack/tools does.
func hasCode(files []string, module string) bool {
	return slices.ContainsFunc(files, func(file string) bool {
		return strings.HasSuffix(file, ".go") && (module == "." || strings.HasPrefix(file, module+"/"))
	})
}

func (c checkout) path(name string) string { return filepath.Join(string(c), filepath.FromSlash(name)) }

// run runs a command in a folder of the checkout. What it says is in the error.
func (c checkout) run(dir string, args ...string) error {
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Dir = c.path(dir)
	if said, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(args, " "), err, said)
	}
	return nil
}

// files are those in git and those not yet added, but neither ignored nor deleted
// ones.
func (c checkout) files() ([]string, error) {
	cmd := exec.Command("git", "-c", "core.quotePath=false", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	cmd.Dir = string(c)
	listed, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list the files of %s with git: %w", c, err)
	}
	names := slices.DeleteFunc(strings.Split(string(listed), "\x00"), func(name string) bool {
		info, err := os.Lstat(c.path(name))
		return err != nil || !info.Mode().IsRegular()
	})
	slices.Sort(names)
	return slices.Compact(names), nil
}

// modulesOf are the folders of our Go modules, "." first. A go.mod in a testdata
// folder is a test's input and not a module to check, but for
// testdata/consumers, which are programs that must build.
func modulesOf(files []string) []string {
	var dirs []string
	for _, file := range files {
		dir := path.Dir(file)
		input := slices.Contains(strings.Split(dir, "/"), "testdata") && !strings.HasPrefix(dir, "testdata/consumers/")
		if path.Base(file) == "go.mod" && !input {
			dirs = append(dirs, dir)
		}
	}
	slices.Sort(dirs)
	return dirs
}

func named(files []string, ends string) []string {
	return slices.DeleteFunc(slices.Clone(files), func(file string) bool { return !strings.HasSuffix(file, ends) })
}

func (c checkout) gofmt(files []string) error {
	cmd := exec.Command("gofmt", append([]string{"-l"}, named(files, ".go")...)...)
	cmd.Dir = string(c)
	said, err := cmd.CombinedOutput()
	if err == nil && len(said) > 0 {
		err = errors.New("format these")
	}
	if err != nil {
		err = fmt.Errorf("gofmt: %w\n%s", err, said)
	}
	return err
}

func (c checkout) bash(files []string) error {
	var all error
	for _, file := range named(files, ".sh") {
		all = errors.Join(all, c.run(".", "bash", "-n", file))
	}
	return all
}

// paths looks for paths of the machine that a file was written on. They mean
// nothing on other machines.
func (c checkout) paths(files []string) error {
	var local []string
	for _, dir := range []string{string(c), os.Getenv("HOME")} {
		if dir = strings.TrimRight(dir, "/"); dir != "" {
			local = append(local, regexp.QuoteMeta(dir))
		}
	}
	found := regexp.MustCompile(`(^|[^[:alnum:]_./-])(` + strings.Join(local, "|") + `)(/|[^[:alnum:]_.-]|$)`)
	var all error
	for _, file := range files {
		text, err := os.ReadFile(c.path(file))
		if err != nil {
			return err
		}
		for i, line := range bytes.Split(text, []byte("\n")) {
			if found.Match(line) {
				all = errors.Join(all, fmt.Errorf("a path of this machine in %s:%d: %s", file, i+1, line))
			}
		}
	}
	return all
}
