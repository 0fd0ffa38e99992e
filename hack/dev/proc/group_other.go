// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package proc

import (
	"errors"
	"os/exec"
)

// The scripts of hack run on Unix. This is only there so that all packages can be
// built elsewhere.

func group(*exec.Cmd) {}

func end(int) {}

// TryLock would lock a file.
func TryLock(string) (unlock func(), locked bool, err error) {
	return nil, false, errors.ErrUnsupported
}
