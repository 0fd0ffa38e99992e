// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"bytes"
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
	j.tellGitignore(ctx, append(names, notes(manifest)...))
	j.tellDocker(names)
	j.tellMakefile()
	return j.tellModules(ctx)
}

// notes are the files of the manifest's folder.
func notes(manifest *tree.Manifest) []string {
	names := []string{path.Join(place, tree.Meta, "manifest.json")}
	for _, saved := range manifest.Saved {
		if saved.Copy != "" {
			names = append(names, path.Join(place, tree.Meta, saved.Copy))
		}
	}
	slices.Sort(names)
	return names
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
		by, _, ok := strings.Cut(line, "\t")
		if _, pattern := cutRule(by); !ok || strings.HasPrefix(pattern, "!") {
			continue
		}
		if hidden++; rule == "" {
			rule = by
		}
	}
	if hidden == 0 {
		return
	}
	where, pattern := cutRule(rule)
	j.advice("gitignore", "%s (%s) hides %d files of the tree; add to %s:", where, pattern, hidden, j.show(".gitignore"))
	above := path.Dir(place)
	j.lines("!/"+above+"/", "!/"+place+"/", "!/"+place+"/**")
}

// cutRule takes "third_party/" out of git's ".gitignore:3:third_party/".
func cutRule(rule string) (where, pattern string) {
	words := strings.SplitN(rule, ":", 3)
	if len(words) < 3 {
		return rule, ""
	}
	return words[0] + " line " + words[1], words[2]
}

func (j *job) tellDocker(names []string) {
	for name, text := range j.glob("Dockerfile", "Dockerfile.*", "*.Dockerfile", "*/Dockerfile") {
		// As in the Dockerfiles that kubebuilder makes: go mod download runs before the tree is there.
		if strings.Contains(text, "COPY go.mod") && !strings.Contains(text, "third_party") {
			j.advice("docker", "%s copies go.mod by itself; add before go mod download:", name)
			j.lines("COPY third_party/ third_party/")
		}
	}
	for name, text := range j.glob(".dockerignore", "*.dockerignore") {
		j.tellDockerignore(name, text, names)
	}
}

func (j *job) tellDockerignore(name, text string, names []string) {
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
		j.advice("docker", "%s line %d hides %s; add at its end:", name, line, hidden[0])
		j.lines("!" + hidden[0])
	default:
		j.advice("docker", "%s line %d hides %d files of the tree; add at its end:", name, line, len(hidden))
		j.lines("!" + place + "/**")
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

// tellModules names the main modules of the repository that go.mod's replace does
// not reach: a replace counts in the main module only.
func (j *job) tellModules(ctx context.Context) error {
	others, err := j.otherModules(ctx)
	if err != nil {
		return err
	}
	missed := slices.DeleteFunc(others, func(m nested) bool { return m.forked })
	if len(missed) == 0 {
		return nil
	}
	j.advice("modules", "%d more in %s with a go.mod of their own, which a replace here does not reach; for those you build, run:", len(missed), j.Dir)
	return j.tellReplaces(missed, "-replace="+tree.Module+"=")
}

// tellLeftReplaces names those whose replace leads to a tree that is gone.
func (j *job) tellLeftReplaces(ctx context.Context) error {
	others, err := j.otherModules(ctx)
	if err != nil {
		return err
	}
	left := slices.DeleteFunc(others, func(m nested) bool { return !m.forked })
	if len(left) == 0 {
		return nil
	}
	j.advice("modules", "%d more in %s still replace controller-runtime with the tree; run:", len(left), j.Dir)
	return j.tellReplaces(left, "-dropreplace="+tree.Module)
}

func (j *job) tellReplaces(modules []nested, flag string) error {
	for i, m := range modules {
		if i == mostNamed {
			j.lines(fmt.Sprintf("… and %d more", len(modules)-i))
			return nil
		}
		to := ""
		if strings.HasSuffix(flag, "=") {
			rel, err := filepath.Rel(j.path(m.name), j.slot.Dir)
			if err != nil {
				return fmt.Errorf("find the way from %s to the tree: %w", m.name, err)
			}
			to = filepath.ToSlash(rel)
		}
		j.lines(fmt.Sprintf("go -C %s mod edit %s%s", quoted(j.show(m.name)), flag, to))
	}
	return nil
}

// nested is a module below the consumer that uses controller-runtime.
type nested struct {
	name   string // its folder, relative to the consumer
	forked bool   // it replaces controller-runtime with the consumer's tree
}

// otherModules finds them. Those of the consumer's workspace share its replace,
// and one that replaces controller-runtime with something else has made its choice.
func (j *job) otherModules(ctx context.Context) ([]nested, error) {
	var found []nested
	err := filepath.WalkDir(j.dir, func(name string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return skipUnreadable(entry)
		case name == j.dir:
			return nil
		case entry.IsDir() && passedOver(entry.Name()), entry.IsDir() && name == j.slot.Dir:
			return fs.SkipDir
		case entry.Name() != goMod || entry.IsDir() || filepath.Dir(name) == j.dir || contains(j.used, filepath.Dir(name)):
			return nil
		}
		m, ok := j.readNested(ctx, filepath.Dir(name))
		if ok {
			found = append(found, m)
		}
		return ctx.Err()
	})
	return found, err
}

// skipUnreadable goes on behind what can't be read, another user's data say.
func skipUnreadable(entry fs.DirEntry) error {
	if entry != nil && entry.IsDir() {
		return fs.SkipDir
	}
	return nil
}

func passedOver(folder string) bool {
	return strings.HasPrefix(folder, ".") || strings.HasPrefix(folder, "_") ||
		slices.Contains([]string{"vendor", "testdata", "node_modules"}, folder)
}

// readNested returns what a go.mod has to do with the fork, and not ok if nothing.
// A go.mod that can't be read is left to its owner.
func (j *job) readNested(ctx context.Context, dir string) (m nested, ok bool) {
	other := &module{dir: dir, env: j.env}
	if err := other.reload(ctx); err != nil || !other.mod.requires() {
		return m, false
	}
	m.name = j.relative(dir)
	for _, r := range other.mod.Replace {
		if r.Old.Path == tree.Module {
			m.forked = r.New.Version == "" && filepath.Join(dir, filepath.FromSlash(r.New.Path)) == j.slot.Dir
			return m, m.forked
		}
	}
	return m, true
}

// advice is a line of it, lines are what to type or to paste.
func (j *job) advice(what, format string, args ...any) { j.say(what, "note: "+format, args...) }

func (j *job) lines(lines ...string) {
	var out bytes.Buffer
	for _, line := range lines {
		fmt.Fprintf(&out, "%14s%s\n", "", line)
	}
	fmt.Fprint(j.Out, out.String())
}
