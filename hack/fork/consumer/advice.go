// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"context"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// mostNamed is how many modules are named.
const mostNamed = 5

// askRequired asks for the version that go.mod requires, which stands
// whatever it is replaced with.
const askRequired = `go list -m -f '{{.Version}}' ` + tree.Module

// advice is a line of it, and what to type or to paste.
func (j *job) advice(what, text string, lines ...string) {
	j.say(what, "note: %s", text)
	for _, line := range lines {
		fmt.Fprintf(j.Out, "%14s%s\n", "", line)
	}
}

// advise prints what in the consumer keeps the tree from others, or from a build
// elsewhere, and which lines help.
func (j *job) advise(ctx context.Context) error {
	manifest, err := tree.Load(j.slot.Dir)
	if err != nil {
		return err
	}
	names := slices.Sorted(maps.Keys(manifest.Files))
	for i, name := range names {
		names[i] = path.Join(place, name)
	}
	notes, err := fs.Glob(os.DirFS(j.dir), path.Join(place, tree.Meta, "*"))
	if err != nil {
		return err
	}
	j.tellGitignore(ctx, slices.Concat(names, notes))
	j.tellDocker(names)
	j.tellMakefile()
	return j.tellModules(ctx, false)
}

// tellGitignore asks git, if it is there and DIR is a checkout, which files of
// the tree it leaves out.
func (j *job) tellGitignore(ctx context.Context, names []string) {
	git := exec.CommandContext(ctx, "git", "check-ignore", "-v", "--stdin")
	git.Dir = j.dir
	git.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	out, _ := git.Output() // it fails if nothing is ignored, and outside of a checkout
	rule, hidden := "", 0
	for _, line := range strings.Split(string(out), "\n") {
		by, _, _ := strings.Cut(line, "\t") // .gitignore:3:third_party/
		words := strings.SplitN(by, ":", 3)
		if len(words) < 3 || strings.HasPrefix(words[2], "!") {
			continue
		}
		if hidden++; hidden == 1 {
			rule = fmt.Sprintf("%s line %s (%s)", words[0], words[1], words[2])
		}
	}
	if hidden > 0 {
		j.advice("gitignore", fmt.Sprintf("%s hides %d files of the tree; add to %s:", rule, hidden, j.show(".gitignore")),
			"!/"+path.Dir(place)+"/", "!/"+place+"/", "!/"+place+"/**")
	}
}

func (j *job) tellDocker(names []string) {
	for name, text := range j.glob("Dockerfile", "Dockerfile.*", "*.Dockerfile", "*/Dockerfile") {
		// As in the Dockerfiles that kubebuilder makes: go mod download runs before the tree is there.
		if strings.Contains(text, "COPY go.mod") && !strings.Contains(text, "third_party") {
			j.advice("docker", name+" copies go.mod by itself; add before go mod download:", "COPY third_party/ third_party/")
		}
	}
	for name, text := range j.glob(".dockerignore", "*.dockerignore") {
		rules := parseDockerignore(text)
		line, hidden := 0, []string{}
		for _, file := range names {
			needed := strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") || path.Base(file) == goMod
			if by := rules.hiddenBy(file); needed && by > 0 {
				line, hidden = by, append(hidden, file)
			}
		}
		switch len(hidden) {
		case 0:
		case 1:
			j.advice("docker", fmt.Sprintf("%s line %d hides %s; add at its end:", name, line, hidden[0]), "!"+hidden[0])
		default:
			j.advice("docker", fmt.Sprintf("%s line %d hides %d files of the tree; add at its end:", name, line, len(hidden)), "!"+place+"/**")
		}
	}
}

// tellMakefile finds what kubebuilder's Makefile does: it asks for the version of the
// replacement, to install setup-envtest in it, and a folder has none.
func (j *job) tellMakefile() {
	for name, text := range j.glob("Makefile", "*.mk") {
		if strings.Contains(text, ".Replace.Version") && strings.Contains(text, tree.Module) && !strings.Contains(text, askRequired) {
			j.advice("make", name+" asks for the version of what replaces "+tree.Module+", and a folder has none; for make test, add before ENVTEST_VERSION:",
				"ENVTEST_VERSION ?= $(shell "+askRequired+` | sed -E 's/^v([0-9]+\.[0-9]+).*/release-\1/')`)
		}
	}
}

// glob reads those of the consumer's files whose names match a pattern. One that
// can't be read, a link to nowhere say, has no advice: the fork is in place.
func (j *job) glob(patterns ...string) map[string]string {
	files := map[string]string{}
	for _, pattern := range patterns {
		names, _ := fs.Glob(os.DirFS(j.dir), pattern) // it fails for a malformed pattern only
		for _, name := range names {
			if text, err := os.ReadFile(j.path(name)); err == nil {
				files[name] = string(text)
			}
		}
	}
	return files
}

// tellVendor says what the tree, or its end, makes stale.
func (j *job) tellVendor() {
	if dir, command := j.vendor(); dir != "" {
		j.advice("vendor", fmt.Sprintf("the build takes controller-runtime from %s, which has another one now; run in %s:", j.show(j.relative(dir)), quoted(filepath.Dir(dir))), command)
	}
}

// tellModules names the main modules of the repository that go.mod's replace does
// not reach: a replace counts in the main module only. After an undo it names
// those whose own replace leads to the tree, which is gone.
func (j *job) tellModules(ctx context.Context, undone bool) error {
	found, err := j.otherModules(ctx)
	if err != nil {
		return err
	}
	var lines []string
	for name, forked := range found {
		flag := "-dropreplace=" + tree.Module
		if !undone {
			flag = "-replace=" + tree.Module + "=" + relativeTo(j.path(name), j.slot.Dir)
		}
		if forked == undone {
			lines = append(lines, fmt.Sprintf("go -C %s mod edit %s", quoted(j.show(name)), flag))
		}
	}
	slices.Sort(lines)
	text := fmt.Sprintf("%d more in %s with a go.mod of their own, which a replace here does not reach; for those you build, run:", len(lines), j.Dir)
	if undone {
		text = fmt.Sprintf("%d more in %s still replace controller-runtime with the tree; run:", len(lines), j.Dir)
	}
	if more := len(lines) - mostNamed; more > 0 {
		lines = append(lines[:mostNamed], fmt.Sprintf("… and %d more", more))
	}
	if len(lines) > 0 {
		j.advice("modules", text, lines...)
	}
	return nil
}

// otherModules finds the modules below the consumer that use controller-runtime, by
// folder: true for one that replaces it with the consumer's tree. Those of the
// consumer's workspace share its replace, and one that replaces controller-runtime
// with something else has made its choice.
func (j *job) otherModules(ctx context.Context) (map[string]bool, error) {
	found := map[string]bool{}
	err := filepath.WalkDir(j.dir, func(name string, entry fs.DirEntry, err error) error {
		dir := filepath.Dir(name)
		switch {
		case err != nil:
			return fs.SkipDir // go on behind what can't be read, another user's data say
		case name == j.dir:
			return nil
		case entry.IsDir() && (passedOver(entry.Name()) || name == j.slot.Dir):
			return fs.SkipDir
		case entry.Name() != goMod || entry.IsDir() || dir == j.dir || contains(j.used, dir):
			return nil
		}
		other := &module{dir: dir, env: j.env}
		if err := other.reload(ctx); err != nil || other.mod.required() == "" {
			return ctx.Err() // a go.mod that can't be read is left to its owner
		}
		with, chosen := other.mod.replaced(dir)
		forked := with == j.slot.Dir
		if forked || !chosen {
			found[j.relative(dir)] = forked
		}
		return ctx.Err()
	})
	return found, err
}

func passedOver(folder string) bool {
	return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") ||
		slices.Contains([]string{"vendor", "testdata", "node_modules"}, folder)
}
