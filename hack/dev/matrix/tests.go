// SPDX-License-Identifier: Apache-2.0

package matrix

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// Line is a release.
type Line struct {
	Version     string
	Stock, Fork Side
}

// Side is one of its two trees.
type Side struct {
	Build, Vet string           // "ok" or "failed"
	Packages   map[string]Tests // by path
}

// Tests are outcomes by the name of the test. That of a spec begins with its suite's.
type Tests map[string]outcome

// outcome is the best that a test came to, in as many tries as it had.
type outcome struct {
	state gotest.State
	retry bool // it took more than one
}

// Add adds a try, numbered from 1, of a package's tests. ginkgo is its report of
// the same try, which knows the specs that go test does not; nil if it made none.
func (t Tests) Add(try int, report *gotest.Report, ginkgo []byte) error {
	states := map[string]gotest.State{}
	for _, test := range report.Tests {
		if test.Name != "" {
			states[test.Name] = test.State
		}
	}
	if ginkgo != nil {
		if err := AddSpecs(states, ginkgo); err != nil {
			return fmt.Errorf("read ginkgo's report: %w", err)
		}
	}
	for name, is := range states {
		if was, known := t[name]; !known || was.state < is {
			t[name] = outcome{state: is, retry: try > 1}
		}
	}
	return nil
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

// address is what a name that prints a pointer has. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// AddSpecs adds the specs of a report that ginkgo made, without addresses in their names. Of
// specs with the same name each gets a number.
func AddSpecs(states map[string]gotest.State, report []byte) error {
	var suites []suite
	if err := json.Unmarshal(report, &suites); err != nil {
		return err
	}
	ends := map[string]gotest.State{"passed": gotest.Passed, "skipped": gotest.Skipped, "pending": gotest.Skipped}
	for _, s := range suites {
		for _, spec := range s.SpecReports {
			is, ok := ends[spec.State]
			if !ok {
				is = gotest.Failed
			}
			if spec.LeafNodeType != "It" {
				if is == gotest.Failed {
					states[s.SuiteDescription+": "+spec.LeafNodeType] = gotest.Failed
				}
				continue
			}
			name := strings.Join(append([]string{s.SuiteDescription + ":"}, append(spec.ContainerHierarchyTexts, spec.LeafNodeText)...), " ")
			name = address.ReplaceAllString(name, "0x…")
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
