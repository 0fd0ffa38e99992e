// SPDX-License-Identifier: Apache-2.0

// Package report writes what a proof has found: a page in Markdown that names the
// machine.
package report

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// Page is a page of results. The zero value is empty.
type Page struct {
	text bytes.Buffer
}

// NewPage begins a page. command is what writes it again, from hack/proof.
func NewPage(title, command string, took time.Duration) *Page {
	p := &Page{}
	p.Text("# %s\n", title)
	p.Text("Written by `%s` in hack/proof, which ran for %s.\n", command, Rounded(took))
	p.Text("Machine: %s, %s, %s.\n", Machine(), runtime.Version(), time.Now().UTC().Format(time.DateOnly))
	return p
}

// Machine is the processor and the number of its cores.
func Machine() string { return fmt.Sprintf("%s, %d cores", processor(), runtime.NumCPU()) }

// Text adds a line.
func (p *Page) Text(format string, args ...any) {
	fmt.Fprintf(&p.text, format, args...)
	p.text.WriteByte('\n')
}

// String returns the page so far.
func (p *Page) String() string { return p.text.String() }

// Table adds a table; rows have as many cells as there are columns.
func (p *Page) Table(columns []string, rows [][]string) {
	p.row(columns)
	rule := make([]string, len(columns))
	for i := range rule {
		rule[i] = "---:"
	}
	rule[0] = "---"
	p.row(rule)
	for _, r := range rows {
		p.row(r)
	}
	p.text.WriteByte('\n')
}

func (p *Page) row(cells []string) {
	for _, cell := range cells {
		p.text.WriteString("| " + strings.ReplaceAll(cell, "|", `\|`) + " ")
	}
	p.text.WriteString("|\n")
}

// Write shows the page, and writes it to a file of the folder. It makes the folder,
// too: what took hours is not lost for want of one.
func (p *Page) Write(dir, name string) error {
	fmt.Fprint(os.Stdout, p.text.String())
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("make the folder of the results: %w", err)
	}
	return os.WriteFile(filepath.Join(dir, name), append(bytes.TrimSpace(p.text.Bytes()), '\n'), 0o644)
}

// Rounded returns a duration with few digits, for a reader.
func Rounded(d time.Duration) string {
	for _, unit := range []time.Duration{time.Second, time.Millisecond, time.Microsecond} {
		if d >= 10*unit {
			return d.Round(unit / 10).String()
		}
	}
	return d.String()
}

// processor returns the model of the processor, if Linux tells it.
func processor() string {
	info, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return runtime.GOARCH
	}
	for line := range strings.Lines(string(info)) {
		if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return runtime.GOARCH
}
