// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// repository is one of releases, perhaps with nothing in it yet.
type repository struct {
	dir  string
	made bool     // there is one
	refs []string // refs/heads/fresh-0.25, refs/tags/v0.25.2-fresh.1, …
}

// openRepository looks at what is in dir, and writes nothing.
func openRepository(ctx context.Context, dir string) (*repository, error) {
	if _, err := exec.LookPath("git"); err != nil {
		return nil, fmt.Errorf("no git command in PATH: install git: %w", err)
	}
	r := &repository{dir: dir}
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0) {
		return r, nil
	}
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	}
	if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == ".git" }) {
		return nil, fmt.Errorf("%s is not empty and no git repository: choose a new folder", dir)
	}
	r.made = true
	return r, r.look(ctx)
}

func (r *repository) look(ctx context.Context) error {
	refs, err := r.git(ctx, nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return err
	}
	r.refs = strings.Fields(refs)
	if !slices.ContainsFunc(r.refs, isRelease) {
		return fmt.Errorf("%s is a git repository of something else: it has no branch fresh-0.x; choose a new folder", r.dir)
	}
	changes, err := r.git(ctx, nil, "status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		first, _, _ := strings.Cut(changes, "\n")
		return fmt.Errorf("%s has changes that are not committed (%s): commit them elsewhere, or choose a new folder", r.dir, strings.TrimSpace(first))
	}
	return nil
}

func isRelease(ref string) bool {
	return strings.HasPrefix(ref, "refs/heads/fresh-0.") ||
		strings.HasPrefix(ref, "refs/remotes/") && strings.Contains(ref, "/fresh-0.")
}

// base is the ref that a branch goes on from, that of a remote if there is no
// local one, as in a fresh clone. "" if the branch is new.
func (r *repository) base(branch string) string {
	if r.has("refs/heads/" + branch) {
		return "refs/heads/" + branch
	}
	for _, ref := range r.refs {
		if strings.HasPrefix(ref, "refs/remotes/") && strings.HasSuffix(ref, "/"+branch) {
			return ref
		}
	}
	return ""
}

func (r *repository) has(ref string) bool { return slices.Contains(r.refs, ref) }

// released reports whether an earlier release has upstream's version.
func (r *repository) released(version string) bool {
	return slices.ContainsFunc(r.refs, func(ref string) bool { return strings.HasPrefix(ref, "refs/tags/"+version+"-fresh.") })
}

// add makes the repository if there is none, lets git read a stream of commits,
// and checks out a branch.
func (r *repository) add(ctx context.Context, stream io.Reader, branch string) error {
	if !r.made {
		if err := os.MkdirAll(r.dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", r.dir, err)
		}
		if _, err := r.git(ctx, nil, "init", "-q", "--template="); err != nil {
			return err
		}
		if _, err := r.git(ctx, nil, "symbolic-ref", "HEAD", "refs/heads/"+branch); err != nil {
			return err
		}
	}
	if _, err := r.git(ctx, stream, "fast-import", "--quiet", "--done"); err != nil {
		return err
	}
	if _, err := r.git(ctx, nil, "checkout", "-q", "-f", branch); err != nil {
		return err
	}
	_, err := r.git(ctx, nil, "reset", "-q", "--hard")
	return err
}

// git runs git in the repository, and never in one around it. What is configured
// for the user has no influence on what is written.
func (r *repository) git(ctx context.Context, stdin io.Reader, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "git", append([]string{"-c", "core.autocrlf=false", "-c", "core.hooksPath=/dev/null"}, args...)...)
	cmd.Dir = r.dir
	cmd.Env = append(cmd.Environ(), "GIT_DEFAULT_HASH=sha1", "GIT_DIR=.git", "GIT_WORK_TREE=.")
	cmd.Stdin = stdin
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	if err != nil {
		said, _, _ := strings.Cut(strings.TrimSpace(stderr.String()), "\n")
		return "", fmt.Errorf("git %s in %s: %w: %s", args[0], r.dir, err, said)
	}
	return stdout.String(), nil
}
