// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// hack/e2e has all else, with a real API server that goes and comes back.
func TestOptions(t *testing.T) {
	for args, want := range map[string]string{
		"-tolerate=0": "-tolerate must be positive", "-status=": "-status must name a file", "-kinds=widgets": `"widgets" is no kind`,
	} {
		if err := run(t.Context(), []string{args}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", args, err, want)
		}
	}
}
