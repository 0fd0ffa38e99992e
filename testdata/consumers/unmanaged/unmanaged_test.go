// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"
)

// hack/e2e tests what the program does.
func TestBadInput(t *testing.T) {
	for args, want := range map[string]string{
		"":                   "usage: unmanaged serve|miss",
		"sing":               `unknown command "sing"`,
		"serve -kind Widget": "must be Kind.version.group",
		"miss -gets 0":       "-gets must be positive, not 0",
	} {
		if err := run(t.Context(), strings.Fields(args)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", args, err, want)
		}
	}
}
