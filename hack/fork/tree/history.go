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

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// A History is what "git fast-import" reads: commits and tags. Nothing in it depends on
// the machine, its user or the time.
type History struct {
	Author *mail.Address
	From   string // the commit to go on from; "" for none
	text   bytes.Buffer
	marks  int
}

// Commit adds a commit of a whole tree, on which the next one builds.
func (h *History) Commit(branch string, when time.Time, message string, files Files) {
	h.marks++
	fmt.Fprintf(&h.text, "commit refs/heads/%s\nmark :%d\n", branch, h.marks)
	h.person("author", when)
	h.person("committer", when)
	h.data([]byte(message))
	if h.From != "" {
		fmt.Fprintf(&h.text, "from %s\n", h.From)
	}
	h.text.WriteString("deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(&h.text, "M 100644 inline %s\n", name) // a file of a Go module needs no quotes
		h.data(files[name])
	}
	h.From = fmt.Sprintf(":%d", h.marks)
}

// Tag tags the last commit.
func (h *History) Tag(name string, when time.Time, message string) {
	fmt.Fprintf(&h.text, "tag %s\nfrom %s\n", name, h.From)
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
	_, err := gotool.Git(ctx, dir, nil, nil, "init", "-q", "--template=")
	if err == nil {
		_, err = gotool.Git(ctx, dir, nil, &h.text, "fast-import", "--quiet", "--done")
	}
	if err == nil {
		_, err = gotool.Git(ctx, dir, nil, nil, "checkout", "-q", "-f", branch)
	}
	return err
}
