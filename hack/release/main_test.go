// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

var command forktest.Command = run

func TestHelp(t *testing.T) {
	command.Help(t, "-repo DIR", "v0.20..v0.25", "-fresh", "-notes", "-module", "-author")
}

func TestUsage(t *testing.T) {
	command.Usage(t, map[string]string{
		"":                           "give -repo DIR",
		"-repo a b":                  `unexpected argument "b"`,
		"-repo a -lines v0.19":       `the line "v0.19" is not supported`,
		"-repo a -lines v0.25,v0.25": "the line v0.25 twice",
		"-repo a -fresh 0":           "begins at 1",
		"-repo a -fresh x":           "invalid value",
		"-repo a -author nobody":     "-author",
		"-frobnicate":                "frobnicate",
	})
}
