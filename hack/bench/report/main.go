// SPDX-License-Identifier: Apache-2.0

// Report turns the output of the benchmarks into a page with tables, the figures
// that were promised and whether they are reached, and plots.
//
//	go run ./report DIR [BEFORE]
//
// DIR holds raw.txt; README.md and the plots are written beside it. The figures
// are printed as well. BEFORE is the raw.txt of an earlier run to compare with.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) < 1 || len(args) > 2 {
		return errors.New("usage: go run ./report DIR [BEFORE]")
	}
	dir := args[0]
	s, err := readFile(filepath.Join(dir, "raw.txt"))
	if err != nil {
		return err
	}
	if len(args) == 2 {
		if s.before, err = readFile(args[1]); err != nil {
			return err
		}
	}
	var page bytes.Buffer
	s.writeReadme(&page)
	if err := os.WriteFile(filepath.Join(dir, "README.md"), page.Bytes(), 0o644); err != nil {
		return err
	}
	if err := s.plot(dir); err != nil {
		return err
	}
	s.printTargets()
	return nil
}

func readFile(name string) (*samples, error) {
	raw, err := os.ReadFile(name)
	if err != nil {
		return nil, err
	}
	return readSamples(bytes.NewReader(raw), filepath.Base(name))
}

func (s *samples) printTargets() {
	missed := 0
	for _, t := range s.targets() {
		if !t.met() {
			missed++
		}
		where := t.where
		if where != "" {
			where = " (" + where + ")"
		}
		fmt.Printf("%s %-78s %s, target %s%s\n", t.mark(), t.what, t.format(t.measured), t.bound(), where)
	}
	fmt.Printf("%d figures missed or not measured\n", missed)
}
