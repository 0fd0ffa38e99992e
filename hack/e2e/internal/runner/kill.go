// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Kill ends the API server at once, with SIGKILL; its etcd goes on. revive starts
// it again on the same port, with the same arguments, and returns when it is
// ready. envtest can do neither. It takes Linux's /proc.
func (s *Server) Kill() (revive func(context.Context) error, err error) {
	pid, args, err := s.process()
	if err != nil {
		return nil, err
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return nil, err
	}
	if s.revived != nil {
		_ = s.revived.Wait() // it was killed; this is how it is reaped
		s.revived = nil
	}
	if err := awaitEnd(pid); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		cmd := exec.Command(args[0], args[1:]...)
		// It must not outlive the test.
		cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
		if err := cmd.Start(); err != nil {
			return err
		}
		s.revived = cmd
		return s.Await(ctx, "the API server", s.ready)
	}, nil
}

// awaitEnd waits until a killed process has let go of its port, which the next one
// is to have: on a busy machine that takes a while. It need not have been reaped.
func awaitEnd(pid int) error {
	for since := time.Now(); time.Since(since) < pollFor; time.Sleep(pollEvery) {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid)) // none any more
		if err != nil || (strings.Contains(string(stat), ") Z ") && len(threads) <= 1) {
			return nil
		}
	}
	return fmt.Errorf("process %d goes on in spite of SIGKILL", pid)
}

// ready reports whether the API server answers /readyz with 200.
func (s *Server) ready() (bool, error) {
	_, err := s.discovery.RESTClient().Get().AbsPath("/readyz").DoRaw(context.Background())
	return err == nil, nil
}

// process finds the API server that listens where s does.
func (s *Server) process() (pid int, args []string, err error) {
	host, err := url.Parse(s.env.Config.Host)
	if err != nil {
		return 0, nil, err
	}
	port := host.Port()
	if port == "" {
		_, port, _ = strings.Cut(s.env.Config.Host, ":")
	}
	return processOf("kube-apiserver", "--secure-port="+port)
}

// stopRevived ends an API server that Kill has started again.
func (s *Server) stopRevived() error {
	if s.revived == nil {
		return nil
	}
	err := s.revived.Process.Signal(syscall.SIGTERM)
	var exit *exec.ExitError
	if waited := s.revived.Wait(); waited != nil && !errors.As(waited, &exit) {
		err = errors.Join(err, waited)
	}
	s.revived = nil
	return err
}
