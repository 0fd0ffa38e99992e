// SPDX-License-Identifier: Apache-2.0

package series

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// surroundings is how many lines that stay surround a change.
const surroundings = 3

// diffTrees writes what leads from one tree to another in git's form, files in
// the order of their paths.
func diffTrees(from, to tree.Files) (string, error) {
	all := maps.Clone(from)
	maps.Copy(all, to)
	var out strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		was, existed := from[name]
		is, exists := to[name]
		if existed && exists && bytes.Equal(was.Data, is.Data) && was.Exec == is.Exec {
			continue
		}
		if err := diffable(name, was, is, existed && exists); err != nil {
			return "", err
		}
		fmt.Fprintf(&out, "diff --git a/%s b/%s\n", name, name)
		before, after := "a/"+name, "b/"+name
		switch {
		case !existed:
			fmt.Fprintf(&out, "new file mode %s\n", mode(is))
			before = "/dev/null"
		case !exists:
			fmt.Fprintf(&out, "deleted file mode %s\n", mode(was))
			after = "/dev/null"
		}
		if hunks := diffLines(string(was.Data), string(is.Data)); hunks != "" {
			fmt.Fprintf(&out, "--- %s\n+++ %s\n%s", before, after, hunks)
		}
	}
	return out.String(), nil
}

// diffable refuses what a mail cannot carry as it is. Nothing of ours needs it.
func diffable(name string, was, is tree.File, both bool) error {
	switch {
	case strings.ContainsAny(name, "\t\n\"\\ "):
		return fmt.Errorf("%q: a name that git would quote", name)
	case bytes.ContainsRune(is.Data, 0) || bytes.ContainsRune(was.Data, 0):
		return fmt.Errorf("%s is not text", name)
	case bytes.Contains(is.Data, []byte("\r\n")) || bytes.Contains(was.Data, []byte("\r\n")):
		return fmt.Errorf("%s has lines that end in CRLF, which git am changes", name)
	case both && was.Exec != is.Exec:
		return fmt.Errorf("%s changes its mode", name)
	}
	return nil
}

func mode(f tree.File) string {
	if f.Exec {
		return "100755"
	}
	return "100644"
}

// op is a line that stays (' '), goes ('-') or comes ('+').
type op struct {
	kind byte
	line string
}

// diffLines writes the hunks of a unified diff, "" if there is no difference.
func diffLines(from, to string) string {
	ops := script(lines(from), lines(to))
	var out strings.Builder
	oldLine, newLine := 1, 1
	for at := 0; at < len(ops); {
		if ops[at].kind == ' ' {
			at, oldLine, newLine = at+1, oldLine+1, newLine+1
			continue
		}
		start := max(0, at-surroundings)
		for back := at - start; back > 0; back-- {
			oldLine, newLine = oldLine-1, newLine-1
		}
		end := hunkEnd(ops, at)
		oldCount, newCount := writeHunk(&out, ops[start:end], oldLine, newLine)
		at, oldLine, newLine = end, oldLine+oldCount, newLine+newCount
	}
	return out.String()
}

func lines(text string) []string { return gotool.SplitLines(text) }

// hunkEnd is where the hunk ends that has its first change at at: two changes
// belong together when their surroundings meet.
func hunkEnd(ops []op, at int) int {
	last := at
	for i := at; i < len(ops) && i-last <= 2*surroundings+1; i++ {
		if ops[i].kind != ' ' {
			last = i
		}
	}
	return min(len(ops), last+1+surroundings)
}

func writeHunk(out *strings.Builder, ops []op, oldLine, newLine int) (oldCount, newCount int) {
	for _, o := range ops {
		if o.kind != '+' {
			oldCount++
		}
		if o.kind != '-' {
			newCount++
		}
	}
	fmt.Fprintf(out, "@@ -%s +%s @@\n", span(oldLine, oldCount), span(newLine, newCount))
	for _, o := range ops {
		out.WriteByte(o.kind)
		out.WriteString(o.line)
		if !strings.HasSuffix(o.line, "\n") {
			out.WriteString("\n\\ No newline at end of file\n")
		}
	}
	return oldCount, newCount
}

// span is "first,count". An empty one names the line before.
func span(first, count int) string {
	switch count {
	case 0:
		return fmt.Sprintf("%d,0", first-1)
	case 1:
		return fmt.Sprint(first)
	}
	return fmt.Sprintf("%d,%d", first, count)
}

// script returns the shortest list of lines that stay, go and come, by the table
// of longest common subsequences: the files that change are a few hundred lines.
func script(from, to []string) []op {
	head := 0
	for head < len(from) && head < len(to) && from[head] == to[head] {
		head++
	}
	tail := 0
	for tail < len(from)-head && tail < len(to)-head && from[len(from)-1-tail] == to[len(to)-1-tail] {
		tail++
	}
	var ops []op
	for _, line := range from[:head] {
		ops = append(ops, op{' ', line})
	}
	ops = append(ops, align(from[head:len(from)-tail], to[head:len(to)-tail])...)
	for _, line := range from[len(from)-tail:] {
		ops = append(ops, op{' ', line})
	}
	return ops
}

func align(from, to []string) []op {
	common := make([][]int, len(from)+1) // of from[i:] and to[j:]
	for i := range common {
		common[i] = make([]int, len(to)+1)
	}
	for i := len(from) - 1; i >= 0; i-- {
		for j := len(to) - 1; j >= 0; j-- {
			common[i][j] = max(common[i+1][j], common[i][j+1])
			if from[i] == to[j] {
				common[i][j] = common[i+1][j+1] + 1
			}
		}
	}
	var ops []op
	i, j := 0, 0
	for i < len(from) || j < len(to) {
		switch {
		case i < len(from) && j < len(to) && from[i] == to[j]:
			ops = append(ops, op{' ', from[i]})
			i, j = i+1, j+1
		case j == len(to) || i < len(from) && common[i+1][j] >= common[i][j+1]:
			ops = append(ops, op{'-', from[i]})
			i++
		default:
			ops = append(ops, op{'+', to[j]})
			j++
		}
	}
	return ops
}
