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
	"regexp"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// askRequired asks for the version that go.mod requires, which stands
// whatever it is replaced with.
const askRequired = `go list -m -f '{{.Version}}' ` + tree.Module

// advised matches the lines that are advised, in a file.
var advised = regexp.MustCompile(`(?m)^(COPY third_party/|!/?third_party/|ENVTEST_VERSION .*'{{\.Version}}').*`)

// ignored matches what git says of a file that a rule hides: .gitignore:3:third_party/
var ignored = regexp.MustCompile(`(?m)^([^:]*):([0-9]+):([^!\t][^\t]*)\t`)

// advice is a line of it, and what to type or to paste.
func (j *job) advice(what, text string, lines ...string) {
	j.say(what, "note: %s", text)
	for _, line := range lines {
		fmt.Fprintf(j.Out, "%14s%s\n", "", line)
	}
}

// advise prints what in the consumer keeps the tree from others, or from a build
// elsewhere, and which lines help.
func (j *job) advise(ctx context.Context, made *tree.Manifest) error {
	names := slices.Sorted(maps.Keys(made.Files))
	for i, name := range names {
		names[i] = path.Join(place, name)
	}
	j.tellGitignore(ctx, append(names, path.Join(place, tree.Meta, "manifest.json")))
	j.tellDocker(names)
	j.tellMakefile(false)
	return j.tellModules(ctx, false)
}

// tellGitignore asks git, if it is there and DIR is a checkout, which files of
// the tree it leaves out.
func (j *job) tellGitignore(ctx context.Context, names []string) {
	git := exec.CommandContext(ctx, "git", "check-ignore", "-v", "--stdin")
	git.Dir = j.dir
	git.Stdin = strings.NewReader(strings.Join(names, "\n") + "\n")
	out, _ := git.Output() // it fails if nothing is ignored, and outside of a checkout
	if hidden := ignored.FindAllStringSubmatch(string(out), -1); hidden != nil {
		j.advice(
			"gitignore",
			fmt.Sprintf(
				"%s line %s (%s) hides files of the tree (%d); add to %s:",
				hidden[0][1],
				hidden[0][2],
				hidden[0][3],
				len(hidden),
				j.show(j.path(".gitignore")),
			),
			"!/"+path.Dir(place)+"/",
			"!/"+place+"/",
			"!/"+place+"/**",
		)
	}
}

func (j *job) tellDocker(names []string) {
	for name, text := range j.glob("Dockerfile", "Dockerfile.*", "*.Dockerfile", "*/Dockerfile") {
		// As in the Dockerfiles that kubebuilder makes: go mod download runs before the tree is there.
		if strings.Contains(text, "COPY go.mod") && !strings.Contains(text, "third_party") {
			j.advice(
				"docker",
				name+" copies go.mod by itself; add before go mod download:",
				"COPY third_party/ third_party/",
			)
		}
	}
	for name, text := range j.glob(".dockerignore", "*.dockerignore") {
		line, hidden := 0, 0
		for _, file := range names {
			needed := strings.HasSuffix(file, ".go") && !strings.HasSuffix(file, "_test.go") || path.Base(file) == goMod
			if by := hiddenBy(text, file); needed && by > 0 {
				line, hidden = by, hidden+1
			}
		}
		if hidden > 0 {
			j.advice(
				"docker",
				fmt.Sprintf("%s line %d hides files of the tree (%d); add at its end:", name, line, hidden),
				"!"+place+"/**",
			)
		}
	}
}

// meant makes a regular expression of a quoted pattern of a .dockerignore.
var meant = strings.NewReplacer(`\*\*/`, "(.*/)?", `\*\*`, ".*", `\*`, "[^/]*", `\?`, "[^/]", `\[`, "[", `\]`, "]")

// hiddenBy is the line of a .dockerignore that keeps a file out of the image, 0 if none
// does: the last that matches the file, or a folder above it, decides.
func hiddenBy(dockerignore, name string) (by int) {
	for i, line := range strings.Split(dockerignore, "\n") {
		pattern, include := strings.CutPrefix(strings.TrimSpace(line), "!")
		if pattern = strings.TrimSpace(pattern); pattern == "" || pattern[0] == '#' {
			continue
		}
		pattern = meant.Replace(regexp.QuoteMeta(strings.TrimPrefix(path.Clean(pattern), "/")))
		// A pattern that can't be compiled is Docker's to complain about.
		if matched, err := regexp.MatchString("^"+pattern+"(/.*)?$", name); err != nil || !matched {
			continue
		}
		if by = i + 1; include {
			by = 0
		}
	}
	return by
}

// tellMakefile finds what kubebuilder's Makefile does: it asks for the version of the
// replacement, to install setup-envtest in it. A folder has none, and a tag (-fresh.1) is one of
// the fork alone. A Makefile that makes a branch of it (release-0.25) can take the tag.
func (j *job) tellMakefile(tag bool) {
	for name, text := range j.glob("Makefile", "*.mk") {
		branch := ""
		if containsAny(text, `release-\`, "release-%") {
			branch = ` | sed -E 's/^v([0-9]+\.[0-9]+).*/release-\1/'`
		}
		asks := strings.Contains(text, ".Replace.Version") && strings.Contains(text, tree.Module) &&
			!strings.Contains(text, askRequired)
		if asks && (branch == "" || !tag) {
			j.advice(
				"make",
				name+" asks for the version of what replaces "+tree.Module+", and setup-envtest has none such; "+
					"for make test, add before ENVTEST_VERSION:",
				"ENVTEST_VERSION ?= $(shell "+askRequired+branch+")",
			)
		}
	}
}

// tellAdvised names the files that still have lines which advise had printed.
func (j *job) tellAdvised() {
	for name, text := range j.glob("*Dockerfile*", "*/Dockerfile", "*ignore", "Makefile", "*.mk") {
		if lines := advised.FindAllString(text, -1); lines != nil {
			j.advice("advice", name+" still has lines for the tree; remove what nothing else needs:", lines...)
		}
	}
}

// glob reads those of the consumer's files whose names match a pattern. One that
// can't be read, for example a dangling link, has no advice: the fork is in place.
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

func (j *job) tellVendor() {
	if dir, command := j.vendor(); dir != "" {
		j.advice(
			"vendor",
			fmt.Sprintf(
				"the build takes controller-runtime from %s, which still has the old one; run in %s:",
				j.show(dir),
				quoted(filepath.Dir(dir)),
			),
			command,
		)
	}
}

// tellModules names the main modules of the repository that go.mod's replace does
// not reach: a replace counts in the main module only. After an undo it names
// those whose own replace leads to the tree, which is gone.
func (j *job) tellModules(ctx context.Context, undone bool) error {
	text := "%d more in %s with a go.mod of their own, which a replace here does not reach; for those you build, run:"
	if undone {
		text = "%d more in %s still replace controller-runtime with the tree; run:"
	}
	var lines []string
	err := j.otherModules(ctx, func(dir string, mod modFile) {
		with, chosen := mod.replaced(dir)
		switch ours := with == string(j.at); {
		case undone && ours:
			lines = append(lines, fmt.Sprintf("go -C %s mod edit -dropreplace=%s", quoted(j.show(dir)), tree.Module))
		case !undone && !chosen:
			lines = append(
				lines,
				fmt.Sprintf(
					"go -C %s mod edit -replace=%s=%s",
					quoted(j.show(dir)),
					tree.Module,
					relativeTo(dir, string(j.at)),
				),
			)
		}
	})
	text = fmt.Sprintf(text, len(lines), j.Dir)
	if len(lines) > 0 {
		j.advice("modules", text, lines...)
	}
	return err
}

// passedOver are folders that hold no module of the user's.
var passedOver = regexp.MustCompile(`^([._].*|vendor|testdata|node_modules)$`)

// otherModules visits the modules below the consumer that use controller-runtime. Those of
// the consumer's workspace share its replace.
func (j *job) otherModules(ctx context.Context, visit func(dir string, mod modFile)) error {
	return filepath.WalkDir(j.dir, func(name string, entry fs.DirEntry, err error) error {
		dir := filepath.Dir(name)
		switch {
		case err != nil:
			return fs.SkipDir // go on behind what can't be read, another user's data say
		case name == j.dir:
			return nil
		case entry.IsDir() && (passedOver.MatchString(entry.Name()) || name == string(j.at)):
			return fs.SkipDir
		case entry.Name() != goMod || entry.IsDir() || dir == j.dir || contains(j.used, dir):
			return nil
		}
		if mod, err := j.read(ctx, dir); err == nil &&
			mod.required() != "" { // one that can't be read is left to its owner
			visit(dir, mod)
		}
		return ctx.Err()
	})
}
