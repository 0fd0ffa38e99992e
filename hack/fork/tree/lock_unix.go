// SPDX-License-Identifier: Apache-2.0

//go:build unix

package tree

import (
	"errors"
	"fmt"
	"os"
	"syscall"
)

// Lock makes sure that only one run at a time works in a folder, which must be there. It
// leaves nothing behind: the folder itself is locked, and the kernel takes the lock back
// when the process ends, however it ends.
func Lock(dir string) (unlock func(), err error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, fmt.Errorf("lock %s: %w", dir, err)
	}
	unlock = func() { folder.Close() } //nolint:errcheck // There is nothing to lose.
	if errors.Is(syscall.Flock(int(folder.Fd()), syscall.LOCK_EX|syscall.LOCK_NB), syscall.EWOULDBLOCK) {
		unlock()
		return nil, fmt.Errorf("another run is at work in %s: wait for it to end", dir)
	}
	return unlock, nil // a file system without locks is no reason to fail
}
