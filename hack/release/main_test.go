// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	var stdout, stderr bytes.Buffer
	if code := run([]string{"-h"}, &stdout, &stderr); code != 0 || stderr.Len() > 0 {
		t.Errorf("code %d, stderr %q", code, &stderr)
	}
	for _, want := range []string{"-repo DIR", "v0.20..v0.25", "-fresh", "-notes", "-module", "-author"} {
		if !strings.Contains(stdout.String(), want) {
			t.Errorf("no %q in\n%s", want, &stdout)
		}
	}
	if strings.Contains(stdout.String(), "%!") {
		t.Errorf("badly formatted:\n%s", &stdout)
	}
}

func TestUsage(t *testing.T) {
	for args, want := range map[string]string{
		"":                            "give -repo DIR",
		"-repo a b":                   `unexpected argument "b"`,
		"-repo a -lines v0.19":        `the line "v0.19" is not supported`,
		"-repo a -lines v0.25..v0.24": "wrong way round",
		"-repo a -lines v0.25,v0.25":  "the line v0.25 twice",
		"-repo a -fresh 0":            "begins at 1",
		"-repo a -fresh x":            "invalid value",
		"-repo a -author nobody":      "-author",
		"-frobnicate":                 "frobnicate",
	} {
		var stdout, stderr bytes.Buffer
		code := run(strings.Fields(args), &stdout, &stderr)
		if said := stderr.String(); code != 1 || !strings.Contains(said, want) || strings.Count(said, "\n") != 1 || stdout.Len() > 0 {
			t.Errorf("%s: code %d, stdout %q, stderr %q", args, code, &stdout, said)
		}
	}
}
