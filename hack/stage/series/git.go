// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// repository is a git repository of our own, with nothing of the user's settings.
type repository struct {
	dir    string
	author string // "Name <address>"
}

func (r repository) git(ctx context.Context, stdin string, args ...string) error {
	cmd := exec.CommandContext(ctx, "git", args...)
	cmd.Dir = r.dir
	cmd.Stdin = strings.NewReader(stdin)
	cmd.Env = append(cmd.Environ(), "GIT_CONFIG_GLOBAL="+os.DevNull, "GIT_CONFIG_NOSYSTEM=1",
		"GIT_COMMITTER_NAME=freshmapper", "GIT_COMMITTER_EMAIL=freshmapper@example.invalid")
	if seconds := os.Getenv("SOURCE_DATE_EPOCH"); seconds != "" {
		cmd.Env = append(cmd.Env, "GIT_AUTHOR_DATE=@"+seconds, "GIT_COMMITTER_DATE=@"+seconds)
	}
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	err := cmd.Run()
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("no git command in PATH: install git: %w", err)
	case err != nil:
		return fmt.Errorf("git %s in a scratch repository: %w: %s", args[0], err, bytes.TrimSpace(said.Bytes()))
	}
	return nil
}

// create makes the repository, with a first commit of upstream's files.
func (r repository) create(ctx context.Context, upstream tree.Files) error {
	if err := r.git(ctx, "", "init", "-q", "--initial-branch=main"); err != nil {
		return err
	}
	for _, setting := range []string{"core.autocrlf=false", "core.fileMode=true", "commit.gpgSign=false", "gc.auto=0"} {
		key, value, _ := strings.Cut(setting, "=")
		if err := r.git(ctx, "", "config", key, value); err != nil {
			return err
		}
	}
	return r.commit(ctx, nil, upstream, "upstream\n")
}

// commit makes one commit that leads from one tree to the next.
func (r repository) commit(ctx context.Context, from, to tree.Files, message string) error {
	for name := range from {
		if _, stays := to[name]; !stays {
			if err := os.Remove(filepath.Join(r.dir, filepath.FromSlash(name))); err != nil {
				return fmt.Errorf("remove a file in a scratch repository: %w", err)
			}
		}
	}
	for name, file := range to {
		was, ok := from[name]
		if ok && was.Exec == file.Exec && bytes.Equal(was.Data, file.Data) {
			continue
		}
		if err := r.write(name, file); err != nil {
			return fmt.Errorf("write %s in a scratch repository: %w", name, err)
		}
	}
	if err := r.git(ctx, "", "add", "--all", "--force"); err != nil {
		return err
	}
	return r.git(ctx, message, "commit", "-q", "--author="+r.author, "--cleanup=verbatim", "--file=-")
}

func (r repository) write(name string, file tree.File) error {
	full, mode := filepath.Join(r.dir, filepath.FromSlash(name)), os.FileMode(0o644)
	if file.Exec {
		mode = 0o755
	}
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(full, file.Data, mode); err != nil {
		return err
	}
	return os.Chmod(full, mode) // of a file that was there
}

// mails writes the commits after the first as files in to.
func (r repository) mails(ctx context.Context, to string, n int) error {
	return r.git(ctx, "", "format-patch", "-q", "--zero-commit", "--full-index", "--no-renames", "--numbered",
		"--signature=freshmapper", "--output-directory", to, fmt.Sprintf("-%d", n))
}
