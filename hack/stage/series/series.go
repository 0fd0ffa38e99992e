// SPDX-License-Identifier: Apache-2.0

// Package series turns what hack/fork does to controller-runtime into patches
// that git am takes: one mail for each of its steps.
package series

import (
	"embed"
	"fmt"
	"io/fs"
	"mime"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// messages are the commit messages, by the name of the patch.
//
//go:embed messages
var messages embed.FS

// Patch is one mail of a series.
type Patch struct {
	File  string // its name, in git format-patch's manner
	Mail  []byte
	Files tree.Files // what the tree is after it
}

// Make makes the series that leads from upstream to upstream with our mapper.
// author is "Name <address>". The same input gives the same bytes.
func Make(base, author string, upstream tree.Files, ours fs.FS) ([]Patch, error) {
	steps, err := tree.Steps(base, upstream, ours)
	if err != nil {
		return nil, err
	}
	var patches []Patch
	before := upstream
	for i, step := range steps {
		after, err := dress(step.Files, upstream)
		if err != nil {
			return nil, err
		}
		diff, err := diffTrees(before, after)
		if err != nil {
			return nil, fmt.Errorf("patch %q: %w", step.Patch, err)
		}
		m, err := readMessage(step.Patch)
		if err != nil {
			return nil, err
		}
		patches = append(patches, Patch{
			File:  fmt.Sprintf("%04d-%s.patch", i+1, dashed(m.subject)),
			Mail:  mail(m, author, i+1, len(steps), diff),
			Files: after,
		})
		before = after
	}
	return patches, nil
}

type message struct{ subject, body string }

func readMessage(patch string) (message, error) {
	text, err := messages.ReadFile("messages/" + patch + ".txt")
	if err != nil {
		return message{}, fmt.Errorf("patch %q has no commit message: %w", patch, err)
	}
	subject, body, _ := strings.Cut(string(text), "\n\n")
	return message{subject: subject, body: strings.TrimSpace(body) + "\n"}, nil
}

// mail writes a patch in the form of git format-patch. It has no date: git am
// takes the time of its own run.
func mail(m message, author string, n, of int, diff string) []byte {
	const commit = "0000000000000000000000000000000000000000"
	return fmt.Appendf(nil, "From %s Mon Sep 17 00:00:00 2001\nFrom: %s\nSubject: [PATCH %d/%d] %s\n"+
		"MIME-Version: 1.0\nContent-Type: text/plain; charset=UTF-8\nContent-Transfer-Encoding: 8bit\n\n%s---\n\n%s-- \nfreshmapper\n",
		commit, author, n, of, encoded(m.subject), m.body, diff)
}

// encoded is a subject for a mail's header. Only its first word, the icon that
// upstream asks for, is not ASCII; git would take the colon off the icon's name.
func encoded(subject string) string {
	icon, rest, _ := strings.Cut(subject, " ")
	return mime.QEncoding.Encode("UTF-8", icon) + " " + rest
}

// dashed makes a file name of a subject.
func dashed(subject string) string {
	words := strings.FieldsFunc(subject, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9')
	})
	name := strings.Join(words, "-")
	return strings.TrimRight(name[:min(len(name), 52)], "-")
}
