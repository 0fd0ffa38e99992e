// SPDX-License-Identifier: Apache-2.0

//go:build unix

package proc_test

import (
	"bufio"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// A command that is told to end takes with it what it has started.
func TestRunEndsAll(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		err := proc.Command{Args: []string{"sh", "-c", "sleep 300 & echo $!; wait"}, Stdout: write}.Run(ctx)
		done <- err
	}()
	line, err := bufio.NewReader(read).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	child, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(err)
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
	for since := time.Now(); syscall.Kill(child, 0) == nil && !zombie(child); time.Sleep(10 * time.Millisecond) {
		if time.Since(since) > 5*time.Second {
			t.Fatalf("process %d still runs", child)
		}
	}
}

// zombie reports whether a process has ended and nobody has asked how.
func zombie(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && strings.Contains(string(stat), ") Z ")
}

func TestOutput(t *testing.T) {
	said, err := proc.Output(context.Background(), t.TempDir(), []string{"WORD=yes"}, "sh", "-c", "echo $WORD; echo no >&2; exit 3")
	if said != "yes" || err == nil || !strings.HasSuffix(err.Error(), "exit status 3\nno") {
		t.Errorf("%q, %v", said, err)
	}
}

func TestTryLock(t *testing.T) {
	name := filepath.Join(t.TempDir(), "lock")
	unlock, locked, err := proc.TryLock(name)
	if err != nil || !locked {
		t.Fatalf("the first: %v, %v", locked, err)
	}
	if _, again, err := proc.TryLock(name); err != nil || again {
		t.Errorf("the second: %v, %v", again, err)
	}
	unlock()
	unlock, locked, err = proc.TryLock(name)
	if err != nil || !locked {
		t.Fatalf("after the first: %v, %v", locked, err)
	}
	unlock()
}

func TestRemove(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "dir")
	deep := filepath.Join(dir, "deep")
	if err := os.MkdirAll(deep, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "file"), nil, 0o400); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(deep, 0o500); err != nil {
		t.Fatal(err)
	}
	if err := proc.Remove(dir); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("it is still there: %v", err)
	}
}
