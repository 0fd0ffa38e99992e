// SPDX-License-Identifier: Apache-2.0

// Report turns the output of the benchmarks into a page with tables, the figures
// that were promised and whether they are reached, and plots.
//
//	go run ./report DIR
//
// DIR holds raw.txt. README.md and the plots are written beside it, and the figures
// are printed as well.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: go run ./report DIR")
		os.Exit(2)
	}
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	s, err := readSamples(filepath.Join(dir, "raw.txt"))
	if err != nil {
		return err
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
