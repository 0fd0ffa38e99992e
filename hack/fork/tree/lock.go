// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// errLocked is what takeLock returns for a file that another process has locked.
var errLocked = errors.New("locked")

// moment is how long takeLock is tried. If a run is killed while it starts a
// process, that process holds the run's lock until it executes its own program.
const moment = time.Second

// Lock makes sure that only one run at a time works in a folder. It leaves nothing
// in the folder: the lock is a file in the temporary folder, and the file's time is
// the time of the lock. unlock removes it.
func Lock(dir string) (unlock func(), err error) {
	name := lockName(dir)
	file, err := takeLock(name)
	for end := time.Now().Add(moment); errors.Is(err, errLocked) && time.Now().Before(end); file, err = takeLock(name) {
		time.Sleep(moment / 20)
	}
	if errors.Is(err, errLocked) {
		since := "a moment ago"
		if info, err := os.Stat(name); err == nil {
			since = info.ModTime().Format(time.DateTime)
		}
		return nil, fmt.Errorf("another run is at work in %s since %s: wait for it to end", dir, since)
	}
	if err != nil {
		return nil, fmt.Errorf("lock %s for this run: %w (if a run of another user left that file, remove it)", dir, err)
	}
	_ = os.Chtimes(name, time.Time{}, time.Now()) // a killed run may have left the file long ago
	return func() {
		os.Remove(name) //nolint:errcheck // An old file without a lock does no harm.
		file.Close()    //nolint:errcheck // There is nothing in it to lose.
	}, nil
}

// lockName is the same for all names of a folder.
func lockName(dir string) string {
	if abs, err := filepath.Abs(dir); err == nil {
		dir = abs
	}
	if real, err := filepath.EvalSymlinks(dir); err == nil {
		dir = real
	}
	return filepath.Join(os.TempDir(), "freshmapper-"+Digest([]byte(dir))[:16]+".lock")
}
