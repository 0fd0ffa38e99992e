// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"errors"
	"os/exec"
)

// Crash ends the program at once, with SIGKILL, and waits. What it wrote to
// stderr is returned.
func (p *Process) Crash() (stderr string, err error) {
	killed := p.cmd.Process.Kill()
	stderr, err = p.wait()
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.ExitCode() < 0 {
		err = nil // that is what it was to do
	}
	return stderr, errors.Join(killed, err)
}
