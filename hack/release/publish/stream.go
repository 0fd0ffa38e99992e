// SPDX-License-Identifier: Apache-2.0

package publish

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/mail"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// stream is what "git fast-import" reads: for each edition the commit of
// upstream's release, unless an earlier edition has brought it, that of ours, and
// the tag. Nothing in it depends on the machine or the time.
func (r Request) stream(repo *repository, editions []edition, author *mail.Address) io.Reader {
	s := &stream{author: author}
	for _, e := range editions {
		if base := repo.base(e.branch); base != "" {
			s.from = base + "^0"
		}
		if e.upstream != nil {
			s.commit(e.branch, e.time, fmt.Sprintf("controller-runtime %s, as upstream released it\n", e.version), e.upstream)
		}
		when := e.time
		if !r.Date.IsZero() {
			when = r.Date
		}
		s.commit(e.branch, when, fmt.Sprintf("Put a RESTMapper into controller-runtime %s that stays fresh\n\nMade by hack/release of %s.\n", e.version, tree.Ours), e.files)
		s.tag(e.tag, when, fmt.Sprintf("controller-runtime %s with a RESTMapper that stays fresh\n\nreplace %s => %s %s\n", e.version, tree.Module, r.Module, e.tag))
		s.from = ""
	}
	s.WriteString("done\n")
	return s
}

type stream struct {
	bytes.Buffer
	author *mail.Address
	from   string // the commit to go on from; "" for none
	marks  int
}

func (s *stream) commit(branch string, when time.Time, message string, files tree.Files) {
	s.marks++
	fmt.Fprintf(s, "commit refs/heads/%s\nmark :%d\n", branch, s.marks)
	s.person("author", when)
	s.person("committer", when)
	s.data([]byte(message))
	if s.from != "" {
		fmt.Fprintf(s, "from %s\n", s.from)
	}
	s.WriteString("deleteall\n")
	for _, name := range slices.Sorted(maps.Keys(files)) {
		mode := "100644"
		if files[name].Exec {
			mode = "100755"
		}
		fmt.Fprintf(s, "M %s inline %s\n", mode, quoted(name))
		s.data(files[name].Data)
	}
	s.from = fmt.Sprintf(":%d", s.marks)
}

func (s *stream) tag(name string, when time.Time, message string) {
	fmt.Fprintf(s, "tag %s\nfrom %s\n", name, s.from)
	s.person("tagger", when)
	s.data([]byte(message))
}

func (s *stream) person(role string, when time.Time) {
	fmt.Fprintf(s, "%s %s <%s> %d +0000\n", role, s.author.Name, s.author.Address, when.Unix())
}

func (s *stream) data(data []byte) {
	fmt.Fprintf(s, "data %d\n", len(data))
	s.Write(data)
	s.WriteString("\n")
}

// quoted is a path as fast-import reads it.
func quoted(name string) string {
	if !strings.ContainsAny(name, "\"\\\n") {
		return name
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(name) + `"`
}
