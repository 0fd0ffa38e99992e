// SPDX-License-Identifier: Apache-2.0

// Report turns the output of the benchmarks into a page with tables, the figures
// that were promised and whether they are reached, and plots.
//
//	go run ./report DIR [BEFORE]
//
// DIR holds raw.txt. README.md and the plots are written beside it, and the figures
// are printed as well. BEFORE is the raw.txt of an earlier run to compare with.
package main

import (
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
	s, err := readSamples(filepath.Join(dir, "raw.txt"))
	if err != nil {
		return err
	}
	if len(args) == 2 {
		if s.Before, err = readSamples(args[1]); err != nil {
			return err
		}
	}
	if err := s.writePage(filepath.Join(dir, "README.md")); err != nil {
		return err
	}
	if err := s.plot(dir); err != nil {
		return err
	}
	missed := 0
	for _, f := range s.Figures() {
		if f.Mark != reached {
			missed++
		}
		fmt.Printf("%s %-78s %s, target %s\n", f.Mark, f.What, f.Measured, f.Bound)
	}
	fmt.Printf("%d figures missed or not measured\n", missed)
	return nil
}
