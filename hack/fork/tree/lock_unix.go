// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tree

import (
	"errors"
	"os"
	"syscall"
)

// takeLock opens a file and locks it. The kernel takes the lock back when the
// process ends, however it ends.
func takeLock(name string) (*os.File, error) {
	for {
		file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			return nil, err
		}
		err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil && isAt(file, name) {
			return file, nil
		}
		if closed := file.Close(); err == nil {
			err = closed // another run removed the file as it ended: try again
		}
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, errLocked
		}
		if err != nil {
			return nil, err
		}
	}
}

// isAt reports whether an open file is still the one of that name.
func isAt(file *os.File, name string) bool {
	opened, errOpened := file.Stat()
	named, errNamed := os.Stat(name)
	return errOpened == nil && errNamed == nil && os.SameFile(opened, named)
}
