// SPDX-License-Identifier: Apache-2.0

// Package matrix runs upstream's own tests on stock and forked controller-runtime
// trees, and compares their results. It is a test that writes a page: hack/test.sh
// -matrix.
package matrix

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/gotest"
)

// suite is the part of ginkgo's JSON report that matters here.
type suite struct {
	SuiteDescription string
	SpecReports      []struct {
		ContainerHierarchyTexts []string
		LeafNodeType            string
		LeafNodeText            string
		State                   string
	}
}

// address matches a pointer that is printed in a name. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// AddSpecs adds the specs of a report that ginkgo made, without addresses in their names. Of
// specs with the same name each gets a number.
func AddSpecs(states map[string]gotest.State, report []byte) error {
	var suites []suite
	if err := json.Unmarshal(report, &suites); err != nil {
		return fmt.Errorf("read ginkgo's report: %w", err)
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
