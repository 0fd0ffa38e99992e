// SPDX-License-Identifier: Apache-2.0

//go:build unix

package proc

import (
	"errors"
	"os"
	"os/exec"
	"syscall"
	"time"
)

func group(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} }

// end ends all processes of a group, and returns when there are none.
func end(pid int) {
	_ = syscall.Kill(-pid, syscall.SIGTERM) // there may be none any more
	for since := time.Now(); time.Since(since) < grace; time.Sleep(50 * time.Millisecond) {
		if errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
			return
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL)
}

// TryLock locks a file, which it makes if need be, and reports whether it could:
// another process may hold the lock. The kernel takes the lock back when the
// process ends, however it ends. The file stays.
func TryLock(name string) (unlock func(), locked bool, err error) {
	file, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, false, err
	}
	err = syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if err != nil {
		_ = file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = nil
		}
		return nil, false, err
	}
	return func() { _ = file.Close() }, true, nil
}
