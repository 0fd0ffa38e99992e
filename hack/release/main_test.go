// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

var command forktest.Command = run

func TestHelp(t *testing.T) {
	command.Says(t, "-h", "-repo DIR", "v0.20..v0.25", "-fresh", "-notes", "-module", "-author")
}

func TestUsage(t *testing.T) {
	command.Usage(t, map[string]string{
		"":                       "give -repo DIR",
		"-repo a b":              `unexpected argument "b"`,
		"-repo a -lines v0.19":   `-lines "v0.19": use lines`,
		"-repo a -fresh 0":       "begins at 1",
		"-repo a -fresh x":       "invalid value",
		"-repo a -author nobody": "-author",
		"-frobnicate":            "frobnicate",
	})
}
