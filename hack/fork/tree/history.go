// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"net/mail"
	"os"
	"slices"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
)

// A History is what "git fast-import" reads: commits and tags. Nothing in it depends on
// the machine, its user or the time.
type History struct {
	Author *mail.Address
	text   bytes.Buffer
}

// Commit adds a commit of a whole tree to a branch. From is where the branch begins, or goes
// on, in this history; "" for nowhere, and for what it has already.
func (h *History) Commit(branch, from string, when time.Time, message string, files Files) {
	fmt.Fprintf(&h.text, "commit refs/heads/%s\n", branch)
	h.person("author", when)
	h.person("committer", when)
	h.data([]byte(message))
	if from != "" {
		fmt.Fprintf(&h.text, "from %s^0\n", from)
	}
	h.text.WriteString("deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&h.text, "M 100644 inline %s\n", name) // a file of a Go module needs no quotes
		h.data(files[name])
	}
}

// Tag tags the last commit of a branch.
func (h *History) Tag(name, branch string, when time.Time, message string) {
	fmt.Fprintf(&h.text, "tag %s\nfrom refs/heads/%s\n", name, branch)
	h.person("tagger", when)
	h.data([]byte(message))
}

func (h *History) person(role string, when time.Time) {
	fmt.Fprintf(&h.text, "%s %s <%s> %d +0000\n", role, h.Author.Name, h.Author.Address, when.Unix())
}

func (h *History) data(data []byte) {
	fmt.Fprintf(&h.text, "data %d\n", len(data))
	h.text.Write(data)
	h.text.WriteString("\n")
}

// Import adds the commits to the repository in dir, makes one if there is none, and checks
// out a branch. git takes all the commits or none.
func (h *History) Import(ctx context.Context, dir, branch string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make %s: %w", dir, err)
	}
	h.text.WriteString("done\n")
	_, err := cli.Git(ctx, dir, nil, nil, "init", "-q", "--template=")
	if err == nil {
		_, err = cli.Git(ctx, dir, nil, &h.text, "fast-import", "--quiet", "--done")
	}
	if err == nil {
		_, err = cli.Git(ctx, dir, nil, nil, "checkout", "-q", "-f", branch)
	}
	return err
}
