// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package tree

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"
)

// abandoned is the age at which a lock must be a killed run's.
const abandoned = time.Hour

// takeLock makes a file that may not be there yet. A killed run leaves it behind.
func takeLock(name string) (*os.File, error) {
	if info, err := os.Stat(name); err == nil && time.Since(info.ModTime()) > abandoned {
		if err := os.Remove(name); err != nil {
			return nil, fmt.Errorf("remove the lock of a run that was killed: %w", err)
		}
	}
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return nil, errLocked
	}
	return file, err
}
