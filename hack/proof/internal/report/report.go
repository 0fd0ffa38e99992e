// SPDX-License-Identifier: Apache-2.0

// Package report writes what a proof has found: a page in Markdown that names the
// machine.
package report

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Page is a page of results. The zero value is empty.
type Page struct {
	text bytes.Buffer
}

// Text adds a line.
func (p *Page) Text(format string, args ...any) { fmt.Fprintf(&p.text, format+"\n", args...) }

// Table adds a table; rows have as many cells as there are columns.
func (p *Page) Table(columns []string, rows ...[]string) {
	rule := append([]string{"---"}, strings.Fields(strings.Repeat("---: ", len(columns)-1))...)
	for _, row := range append([][]string{columns, rule}, rows...) {
		for _, cell := range row {
			p.text.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
		}
		p.text.WriteString("|\n")
	}
	p.text.WriteByte('\n')
}

// String returns the page so far, without a head.
func (p *Page) String() string { return strings.TrimSpace(p.text.String()) }

// Write shows the page under a head, and writes both to a file. It makes the folder, too:
// what took hours is not lost for want of one.
func (p *Page) Write(file, head string) error {
	text := head + "\n" + p.String() + "\n"
	fmt.Fprint(os.Stdout, text)
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return fmt.Errorf("make the folder of the results: %w", err)
	}
	return os.WriteFile(file, []byte(text), 0o644)
}

// Machine is the processor with the number of its cores, Go, the day, and the commit.
func Machine() string {
	processor := runtime.GOARCH
	info, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it
	if _, after, ok := strings.Cut(string(info), "model name"); ok {
		line, _, _ := strings.Cut(after, "\n")
		processor = strings.Trim(line, " \t:")
	}
	day := time.Now().UTC().Format(time.DateOnly)
	commit, _ := exec.Command("git", "rev-parse", "--short", "HEAD").Output() // a copy without history has none
	return strings.TrimSpace(
		fmt.Sprintf("%s, %d cores, %s, %s, commit %s", processor, runtime.NumCPU(), runtime.Version(), day, commit),
	)
}

// Rounded returns a duration with three digits, for a reader.
func Rounded(d time.Duration) string {
	unit := time.Duration(1)
	for d >= 1000*unit {
		unit *= 10
	}
	return d.Round(unit).String()
}
