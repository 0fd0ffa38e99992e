// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/forktest"
)

var command forktest.Command = run

func TestHelp(t *testing.T) {
	command.Says(t, "-h", "-repo DIR", "v0.20..v0.25", "[-module M] [-notes DIR]", "or from the same earlier tags", "-author")
}

func TestUsage(t *testing.T) {
	command.Usage(t, map[string]string{
		"":                       "give -repo DIR",
		"-repo a b":              `unexpected argument "b"`,
		"-repo a -lines v0.19":   `-lines "v0.19": use a line`,
		"-repo a -fresh 2":       "-fresh",
		"-repo a -author nobody": "-author",
		"-frobnicate":            "frobnicate",
	})
}
