// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// results are the folders that hack/matrix.sh has written, as one tree:
//
//	server.txt                        the API servers, in words
//	<version>/<side>/build.txt        "ok" or "failed"
//	<version>/<side>/vet.txt          the same
//	<version>/<side>/<package>/N.go   what go test -json said at the Nth try
//	<version>/<side>/<package>/N.ginkgo   ginkgo's report of the same try, if it made one
//
// side is "stock" or "fork". In <package> "_" stands for "/".
type results struct {
	servers string
	lines   []line
}

// line is a release.
type line struct {
	version     string
	stock, fork side
}

// side is one of its two trees.
type side struct {
	build, vet string
	packages   map[string]tests // by path
}

// tests are outcomes by the name of the test. That of a spec begins with its suite's.
type tests map[string]outcome

// outcome is the best that a test came to, in as many tries as it had.
type outcome struct {
	state state
	retry bool // it took more than one
}

type state int

const (
	absent state = iota
	failed
	skipped
	passed
)

func (s state) String() string { return [...]string{"absent", "failed", "skipped", "passed"}[s] }

func readResults(root string) (*results, error) {
	r := &results{}
	text, err := os.ReadFile(filepath.Join(root, "server.txt"))
	if err != nil {
		return nil, fmt.Errorf("read the results: %w", err)
	}
	r.servers = strings.TrimSpace(string(text))
	dirs, err := filepath.Glob(filepath.Join(root, "v*"))
	if err != nil || len(dirs) == 0 {
		return nil, fmt.Errorf("no results of any release: %w", errors.Join(err, fs.ErrNotExist))
	}
	slices.Sort(dirs)
	for _, dir := range dirs {
		l := line{version: filepath.Base(dir)}
		if l.stock, err = readSide(filepath.Join(dir, "stock")); err != nil {
			return nil, err
		}
		if l.fork, err = readSide(filepath.Join(dir, "fork")); err != nil {
			return nil, err
		}
		r.lines = append(r.lines, l)
	}
	return r, nil
}

func readSide(dir string) (side, error) {
	s := side{packages: map[string]tests{}}
	for name, to := range map[string]*string{"build.txt": &s.build, "vet.txt": &s.vet} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			return s, fmt.Errorf("read the results: %w", err)
		}
		*to = strings.TrimSpace(string(text))
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return s, fmt.Errorf("read the results: %w", err)
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		all, err := readTries(filepath.Join(dir, entry.Name()))
		if err != nil {
			return s, err
		}
		s.packages[strings.ReplaceAll(entry.Name(), "_", "/")] = all
	}
	return s, nil
}

// readTries puts all tries of a package together.
func readTries(dir string) (tests, error) {
	all := tests{}
	for n := 1; ; n++ {
		try, err := readTry(filepath.Join(dir, fmt.Sprint(n)))
		if errors.Is(err, fs.ErrNotExist) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		for name, is := range try {
			if was, known := all[name]; !known || was.state < is {
				all[name] = outcome{state: is, retry: n > 1}
			}
		}
	}
}

func readTry(base string) (map[string]state, error) {
	said, err := os.ReadFile(base + ".go")
	if err != nil {
		return nil, err
	}
	states, err := readGo(bytes.NewReader(said))
	if err != nil {
		return nil, fmt.Errorf("%s.go: %w", base, err)
	}
	report, err := os.ReadFile(base + ".ginkgo")
	if errors.Is(err, fs.ErrNotExist) {
		return states, nil
	}
	if err == nil {
		err = readGinkgo(states, report)
	}
	if err != nil {
		return nil, fmt.Errorf("%s.ginkgo: %w", base, err)
	}
	return states, nil
}

// event is a line of go test -json.
type event struct{ Action, Test string }

// readGo reads outcomes. A test that began and did not end, because the process
// did, has failed. Lines that are no events come from the go command's builds.
func readGo(from io.Reader) (map[string]state, error) {
	ends := map[string]state{"run": failed, "fail": failed, "skip": skipped, "pass": passed}
	states := map[string]state{}
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 16<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil || e.Test == "" {
			continue
		}
		if is, ok := ends[e.Action]; ok {
			states[e.Test] = is
		}
	}
	return states, lines.Err()
}

// suite is what of ginkgo's JSON report matters.
type suite struct {
	SuiteDescription string
	SpecReports      []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
	}
}

// readGinkgo adds the specs of a report. Of specs with the same name each gets a
// number.
func readGinkgo(states map[string]state, report []byte) error {
	var suites []suite
	if err := json.Unmarshal(report, &suites); err != nil {
		return err
	}
	ends := map[string]state{"passed": passed, "skipped": skipped, "pending": skipped}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			is, ok := ends[spec.State]
			if !ok {
				is = failed
			}
			if spec.LeafNodeType != "It" {
				if is == failed {
					states[s.SuiteDescription+": "+spec.LeafNodeType] = failed
				}
				continue
			}
			name := strings.Join(append([]string{s.SuiteDescription + ":"}, append(spec.ContainerHierarchyTexts, spec.LeafNodeText)...), " ")
			unique := name
			for n := 2; ; n++ {
				if _, taken := states[unique]; !taken {
					break
				}
				unique = fmt.Sprintf("%s (%d)", name, n)
			}
			states[unique] = is
		}
	}
	return nil
}
