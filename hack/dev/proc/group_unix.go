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

// group has the command lead a process group, which is told to end when its context does.
func group(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
}

// end returns when no process of the group is left. It waits before it kills.
func end(pid int) {
	for since := time.Now(); time.Since(since) < grace; time.Sleep(50 * time.Millisecond) {
		if errors.Is(syscall.Kill(-pid, 0), syscall.ESRCH) {
			return
		}
	}
	_ = syscall.Kill(-pid, syscall.SIGKILL) // there may be none any more
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
	if err == nil {
		return func() { _ = file.Close() }, true, nil
	}
	_ = file.Close()
	if errors.Is(err, syscall.EWOULDBLOCK) {
		err = nil
	}
	return nil, false, err
}
