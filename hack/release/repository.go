// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// repository is one of releases, which need not be there yet.
type repository struct {
	refs []string // refs/heads/fresh-0.25, refs/tags/v0.25.2-fresh.1, …
}

// openRepository looks at what is in dir, and writes nothing.
func openRepository(ctx context.Context, dir string) (*repository, error) {
	r := &repository{}
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || (err == nil && len(entries) == 0):
		return r, nil
	case err != nil:
		return nil, fmt.Errorf("look at %s: %w", dir, err)
	case !tree.Exists(filepath.Join(dir, ".git")):
		return nil, fmt.Errorf("%s is not empty and no git repository: choose a new folder", dir)
	}
	refs, err := cli.Git(ctx, dir, nil, nil, "for-each-ref", "--format=%(refname)")
	if err != nil {
		return nil, err
	}
	r.refs = strings.Fields(refs)
	if !slices.ContainsFunc(r.refs, func(ref string) bool {
		return strings.HasPrefix(ref, "refs/heads/fresh-0.") || strings.HasPrefix(ref, "refs/remotes/") && strings.Contains(ref, "/fresh-0.")
	}) {
		return nil, fmt.Errorf("%s is a git repository of something else: it has no branch fresh-0.x; choose a new folder", dir)
	}
	changes, err := cli.Git(ctx, dir, nil, nil, "status", "--porcelain")
	if err != nil {
		return nil, err
	}
	if first, _, _ := strings.Cut(changes, "\n"); first != "" {
		return nil, fmt.Errorf("%s has changes that are not committed (%s): commit them elsewhere, or choose a new folder", dir, strings.TrimSpace(first))
	}
	return r, nil
}

// base returns the ref from which a branch continues. Without a local branch, as in
// a fresh clone, it is the remote's. It is "" if the branch is new.
func (r *repository) base(branch string) string {
	if local := "refs/heads/" + branch; slices.Contains(r.refs, local) {
		return local
	}
	for _, ref := range r.refs {
		if strings.HasPrefix(ref, "refs/remotes/") && strings.HasSuffix(ref, "/"+branch) {
			return ref
		}
	}
	return ""
}
