// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

// Process is a running program.
type Process struct {
	cmd     *exec.Cmd
	log     string // the file that has its stderr
	mayExit bool   // with an error, by itself

	ended chan struct{} // closed when it has exited
	err   error         // how; written before ended is closed
}

// hasEnded reports whether the program has exited.
func (p *Process) hasEnded() bool {
	select {
	case <-p.ended:
		return true
	default:
		return false
	}
}

// start starts a program that finds its API server through kubeconfig. It ends with
// ctx and with the test, which shows what it wrote to stderr if it fails.
func start(ctx context.Context, t *testing.T, binary, kubeconfig string, args ...string) *Process {
	t.Helper()
	p := &Process{cmd: exec.CommandContext(ctx, binary, args...), log: filepath.Join(t.TempDir(), "log"), ended: make(chan struct{})}
	stderr, err := os.Create(p.log)
	must(t, err)
	defer func() { _ = stderr.Close() }() // the program has a descriptor of its own
	p.cmd.Env, p.cmd.Stderr = append(os.Environ(), "KUBECONFIG="+kubeconfig), stderr
	must(t, p.cmd.Start())
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(os.Interrupt) // it may have ended already
		<-p.ended
		err := p.err
		if p.mayExit {
			return
		}
		// It may have been ended by the signal, or by the context of a test that is over.
		if exit := (&exec.ExitError{}); err != nil && !errors.Is(err, context.Canceled) && !(errors.As(err, &exit) && exit.ExitCode() < 0) {
			t.Errorf("%s: %v", filepath.Base(binary), err)
		}
		if t.Failed() {
			t.Logf("%s wrote\n%s", filepath.Base(binary), p.wrote())
		}
	})
	return p
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
type Line struct {
	Level, Msg, Error string
	Name              string // of the object that was reconciled
	Widgets           int    // that it has found
}

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

func httpDo(ctx context.Context, method, address, path string) (code int, body string, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
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

// edits are changes of a program's files: each has texts and what comes in their place, one after the other.
type edits map[string][]string

// build builds a program of examples, and returns its path: "stock" as it stands; "fork" in a copy of its
// module that hack/fork has worked on; any other way uses a copy with controller-runtime as it is. What edits import of
// this repository comes from here.
func build(ctx context.Context, t *testing.T, name, way string, edits edits) (binary string) {
	t.Helper()
	binary = filepath.Join(t.TempDir(), name+"-"+way)
	module, folder := examplesRoot, "./"+name
	if name == "plain" { // as kubebuilder scaffolds it, it is a module of its own
		module, folder = filepath.Join(examplesRoot, name), "."
	}
	if way == "stock" { // some import the fork's API, and have another way for stock
		runGo(ctx, t, module, "run", "-tags", "stock", "-exec", "cp", folder, binary)
		return binary
	}
	copied := filepath.Join(t.TempDir(), "module")
	must(t, os.CopyFS(copied, os.DirFS(module)))
	if way != "fork" && module == examplesRoot { // other programs import what only the fork has
		others, err := os.ReadDir(copied)
		must(t, err)
		for _, other := range others {
			if other.IsDir() && other.Name() != name && other.Name() != "frame" {
				must(t, os.RemoveAll(filepath.Join(copied, other.Name())))
			}
		}
	}
	for file, edit := range edits {
		file = filepath.Join(copied, folder, file)
		text, err := os.ReadFile(file)
		must(t, err, os.WriteFile(file, []byte(strings.NewReplacer(edit...).Replace(string(text))), 0o644))
	}
	if way == "fork" {
		runGo(ctx, t, root, "run", "./hack/fork", "-nobuild", "-into", copied) // the last line builds
	}
	if edits != nil {
		absolute, err := filepath.Abs(root)
		must(t, err)
		runGo(ctx, t, copied, "mod", "edit", "-replace="+ours+"="+absolute, "-replace="+ours+"/fresh="+absolute+"/fresh")
		runGo(ctx, t, copied, "mod", "tidy", "-e") // other programs of the module import packages of the fork
	}
	// Unlike go build, go run keeps what it has linked: seconds of each program.
	runGo(ctx, t, copied, "run", "-exec", "cp", folder, binary)
	return binary
}

const (
	root         = "../.."
	examplesRoot = root + "/examples"
	ours         = "github.com/freshmapper/freshmapper"
)

func runGo(ctx context.Context, t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "GOWORK=off")
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("go %s in %s: %v\n%s", strings.Join(args, " "), dir, err, said)
	}
}

// Gateway is a proxy in front of a server. It records the requests, which all have an administrator's rights.
type Gateway struct {
	server *httptest.Server
	next   http.RoundTripper

	mu    sync.Mutex
	calls []Call
}

// Call is a request that was answered.
type Call struct {
	Method, Path string
	Code         int
	Begun        time.Time
}

// isDiscovery reports whether a call asked what the server serves.
func (c Call) isDiscovery() bool {
	parts := strings.Split(strings.Trim(c.Path, "/"), "/")
	return parts[0] == "api" && len(parts) <= 2 || parts[0] == "apis" && len(parts) <= 3
}

// newGateway makes a gateway to a server, which ends with the test.
func newGateway(t *testing.T, s *Server) *Gateway {
	t.Helper()
	cfg := s.plane.Servers[0].Config()
	target, err := url.Parse(cfg.Host)
	must(t, err)
	transport, err := rest.TransportFor(cfg)
	must(t, err)
	g := &Gateway{next: transport}
	g.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport: g,
		ErrorLog:  log.New(io.Discard, "", 0), // clients give up on purpose
	})
	t.Cleanup(g.server.Close)
	return g
}

// RoundTrip passes a request on, and records it.
func (g *Gateway) RoundTrip(req *http.Request) (*http.Response, error) {
	call := Call{Method: req.Method, Path: req.URL.Path, Begun: time.Now()}
	resp, err := g.next.RoundTrip(req)
	if err == nil {
		call.Code = resp.StatusCode
		g.mu.Lock()
		defer g.mu.Unlock()
		g.calls = append(g.calls, call)
	}
	return resp, err
}

// kubeconfig leads through the gateway.
func (g *Gateway) kubeconfig() []byte { return kubeconfig("server: "+g.server.URL, "") }

// Calls returns the calls that began after since and for which wanted returns true,
// in the order in which they were answered.
func (g *Gateway) Calls(since time.Time, wanted func(Call) bool) []Call {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(g.calls), func(c Call) bool { return c.Begun.Before(since) || !wanted(c) })
}
