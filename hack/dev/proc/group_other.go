// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package proc

import (
	"errors"
	"os"
	"os/exec"
)

func group(*exec.Cmd) {}

// end kills the process. What it started is on its own: the scripts of hack run
// on Unix.
func end(pid int) {
	if process, err := os.FindProcess(pid); err == nil {
		_ = process.Kill()
	}
}

// TryLock would lock a file.
func TryLock(string) (unlock func(), locked bool, err error) {
	return nil, false, errors.ErrUnsupported
}
