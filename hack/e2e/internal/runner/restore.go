// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Empty ends the API server and its etcd, both at once, and takes the etcd's data
// away. revive starts both again, at the same addresses, and returns when they are
// ready: so does a cluster that was restored from a backup of nothing. It takes
// Linux's /proc.
func (s *Server) Empty() (revive func(context.Context) error, err error) {
	_, args, err := s.process()
	if err != nil {
		return nil, err
	}
	pid, etcd, err := processOf("etcd", "--listen-client-urls="+flagOf(args, "--etcd-servers"))
	if err != nil {
		return nil, err
	}
	data := flagOf(etcd, "--data-dir")
	if data == "" {
		return nil, errors.New("etcd runs without --data-dir")
	}
	start, err := s.Kill()
	if err != nil {
		return nil, err
	}
	if err := errors.Join(syscall.Kill(pid, syscall.SIGKILL), awaitEnd(pid)); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		if err := s.startEtcd(data, etcd); err != nil {
			return err
		}
		return start(ctx)
	}, nil
}

func (s *Server) startEtcd(data string, args []string) error {
	entries, err := filepath.Glob(filepath.Join(data, "*"))
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := os.RemoveAll(entry); err != nil {
			return err
		}
	}
	s.etcd = exec.Command(args[0], args[1:]...)
	s.etcd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive the test
	return s.etcd.Start()
}

// stopEtcd ends an etcd that was started again.
func (s *Server) stopEtcd() error {
	if s.etcd == nil {
		return nil
	}
	err := s.etcd.Process.Kill()
	_ = s.etcd.Wait() // it was killed
	s.etcd = nil
	return err
}

// flagOf is the value of a flag in a command line.
func flagOf(args []string, name string) string {
	for _, arg := range args {
		if value, ok := strings.CutPrefix(arg, name+"="); ok {
			return value
		}
	}
	return ""
}

// processOf finds a process by its name and one of its arguments.
func processOf(name, arg string) (pid int, args []string, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		return 0, nil, err
	}
	for _, file := range files {
		line, err := os.ReadFile(file)
		if err != nil {
			continue // it has ended meanwhile
		}
		args := strings.Split(strings.TrimRight(string(line), "\x00"), "\x00")
		if filepath.Base(args[0]) == name && slices.Contains(args, arg) {
			_, err := fmt.Sscan(filepath.Base(filepath.Dir(file)), &pid)
			return pid, args, err
		}
	}
	return 0, nil, fmt.Errorf("no %s with %s in /proc", name, arg)
}
