// SPDX-License-Identifier: Apache-2.0

package consumer

import (
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// askRequired asks for the version that go.mod requires, which stands
// whatever it is replaced with.
const askRequired = `go list -m -f '{{.Version}}' ` + tree.Module

// tellMakefile finds what kubebuilder's Makefile does: it asks for the version of the
// replacement, to install setup-envtest in it, and a folder has none.
func (j *job) tellMakefile() {
	for name, text := range j.glob("Makefile", "*.mk") {
		if !strings.Contains(text, ".Replace.Version") || !strings.Contains(text, tree.Module) || strings.Contains(text, askRequired) {
			continue
		}
		j.advice("make", "%s asks for the version of what replaces %s, and a folder has none; for make test, add before ENVTEST_VERSION:", name, tree.Module)
		j.lines("ENVTEST_VERSION ?= $(shell " + askRequired + ` | sed -E 's/^v([0-9]+\.[0-9]+).*/release-\1/')`)
	}
}
