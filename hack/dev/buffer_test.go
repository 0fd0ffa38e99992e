// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os/exec"
	"strings"
	"testing"
)

// What is written while a command runs, which writes to the same place, is kept.
func TestBufferBesideACommand(t *testing.T) {
	var b buffer
	cmd := exec.Command("cat")
	cmd.Stdout, cmd.Stderr = &b, &b
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Write([]byte("meanwhile\n")); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Write([]byte("the command\n")); err != nil {
		t.Fatal(err)
	}
	if err := in.Close(); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"meanwhile", "the command"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("%q is lost: %q", want, b.String())
		}
	}
}
