// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const root = "../.."

// Process is a running program.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.WriteCloser
	stdout *bufio.Reader
	log    string // the file that has its stderr
}

// start starts a program that finds its API server through kubeconfig. It ends with
// ctx and with the test, which shows what it wrote to stderr if it fails.
func start(ctx context.Context, t *testing.T, binary, kubeconfig string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.CommandContext(ctx, binary, args...), log: filepath.Join(t.TempDir(), "log")}
	stderr, err := os.Create(p.log)
	must(t, err)
	defer func() { _ = stderr.Close() }() // the program has a descriptor of its own
	p.cmd.Env, p.cmd.Stderr, p.cmd.WaitDelay = append(os.Environ(), "KUBECONFIG="+kubeconfig), stderr, 10*time.Second
	p.stdin, err = p.cmd.StdinPipe()
	must(t, err)
	stdout, err := p.cmd.StdoutPipe()
	must(t, err)
	p.stdout = bufio.NewReader(stdout)
	must(t, p.cmd.Start())
	t.Cleanup(func() {
		if err := p.end(); err != nil {
			t.Errorf("%s: %v", filepath.Base(binary), err)
		}
		if t.Failed() {
			t.Logf("%s wrote\n%s", filepath.Base(binary), p.wrote())
		}
	})
	return p
}

// ask writes a line to the program and returns the line that it answers.
func (p *Process) ask(line string) ([]byte, error) {
	if _, err := fmt.Fprintln(p.stdin, line); err != nil {
		return nil, fmt.Errorf("asking %q: %w", line, err)
	}
	answer, err := p.stdout.ReadBytes('\n')
	if err != nil {
		return nil, fmt.Errorf("no answer to %q: %w", line, err)
	}
	return answer, nil
}

// end ends the program with a signal and by the end of its input, and waits. It is no
// error if the program was ended by the signal, or by the context of a test that is over.
func (p *Process) end() error {
	_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended already
	err := errors.Join(p.stdin.Close(), p.cmd.Wait())
	if exit := (&exec.ExitError{}); errors.As(err, &exit) && exit.ExitCode() < 0 || errors.Is(err, context.Canceled) {
		err = nil
	}
	return err
}

// wrote is what the program wrote to stderr so far.
func (p *Process) wrote() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Line is a line of a log that zap wrote.
type Line struct{ Level, Msg, Error, Name string } // Name is that of the object that was reconciled

// lines returns the lines of the program's log. Others' lines, that are not zap's,
// are left out, as is one that is half written.
func (p *Process) lines() (lines []Line) {
	for text := range bytes.Lines([]byte(p.wrote())) {
		var line Line
		if json.Unmarshal(text, &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// freeAddress returns a local address that nobody listens at.
func freeAddress(ctx context.Context, t *testing.T) string {
	t.Helper()
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	must(t, err)
	must(t, listener.Close())
	return listener.Addr().String()
}

// httpDo sends a request to a program's own server, which must answer soon.
func httpDo(ctx context.Context, method, address, path string) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, method, "http://"+address+path, nil)
	if err != nil {
		return 0, "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text), err
}

// buildBoth builds a program of testdata/consumers as it stands, and again in the copy of its
// module that hack/fork has worked on. It returns the paths of the programs.
func buildBoth(ctx context.Context, t *testing.T, name string) (stock, fork string) {
	t.Helper()
	dir, program := t.TempDir(), programOf(name)
	stock, fork = filepath.Join(dir, name+"-stock"), filepath.Join(dir, name+"-fork")
	// Some import the fork's API, and have another way for stock.
	runGo(ctx, t, filepath.Join(consumersRoot, program.module), toBuild(stock, program.folder, "-tags", "stock")...)
	copied := copyOf(t, program.module)
	runGo(ctx, t, root, "run", "./hack/fork", "-nobuild", "-into", copied) // the next line builds
	runGo(ctx, t, copied, toBuild(fork, program.folder)...)
	return stock, fork
}

// consumersRoot is the folder of the examples. All are of its module but plain, which is
// one of its own, as kubebuilder scaffolds it.
const consumersRoot = root + "/testdata/consumers"

type program struct{ module, folder string } // module is below consumersRoot, folder below the module

func programOf(name string) program {
	if name == "plain" {
		return program{module: name, folder: "."}
	}
	return program{module: ".", folder: "./" + name}
}

// buildProvider builds a program in a copy with controller-runtime as it is, in which a file
// takes from this repository's modules what it has from controller-runtime. It returns the path
// of the program.
func buildProvider(ctx context.Context, t *testing.T, name, file string, edits ...string) string {
	t.Helper()
	program := programOf(name)
	copied, binary := copyOf(t, program.module), filepath.Join(t.TempDir(), name+"-provider")
	file = filepath.Join(copied, program.folder, file)
	text, err := os.ReadFile(file)
	must(t, err)
	must(t, os.WriteFile(file, []byte(strings.NewReplacer(edits...).Replace(string(text))), 0o644))
	absolute, err := filepath.Abs(root)
	must(t, err)
	runGo(ctx, t, copied, "mod", "edit", "-replace="+ours+"="+absolute, "-replace="+ours+"/fresh="+absolute+"/fresh")
	runGo(ctx, t, copied, "mod", "tidy")
	runGo(ctx, t, copied, toBuild(binary, program.folder)...)
	return binary
}

const ours = "github.com/freshmapper/freshmapper"

// copyOf copies a module of the examples.
func copyOf(t *testing.T, module string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "module")
	must(t, os.CopyFS(copied, os.DirFS(filepath.Join(consumersRoot, module))))
	return copied
}

// toBuild are the arguments of a go command that builds a program. Unlike go build, go run
// keeps what it has linked: seconds of each program.
func toBuild(binary, folder string, flags ...string) []string {
	return append(append([]string{"run"}, flags...), "-exec", "cp", folder, binary)
}

// runGo runs the go command.
func runGo(ctx context.Context, t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, said)
	}
}
