// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package control runs real control planes: one etcd and as many API servers as
// are wanted, each of which can be killed and started again where it was. envtest
// can do neither, and starts one API server.
package control

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
)

const (
	token    = "proof"
	readyFor = 5 * time.Minute // an API server that starts on a busy machine takes its time
)

// Plane is a control plane.
type Plane struct {
	Etcd    *Process
	Servers []*Process

	dir string
}

// Process is an etcd or an API server. Its methods are for one goroutine at a time.
type Process struct {
	Address string // host and port

	args  []string
	log   string // file
	cmd   *exec.Cmd
	ready func(context.Context) bool
}

// Assets returns the folder that holds kube-apiserver and etcd: $KUBEBUILDER_ASSETS,
// or what hack/envtest.sh says, which may take minutes the first time. It is called
// in a folder of hack.
func Assets() (string, error) {
	dir, source := os.Getenv("KUBEBUILDER_ASSETS"), "KUBEBUILDER_ASSETS"
	if dir == "" {
		source = "hack/envtest.sh latest"
		cmd := exec.Command("../envtest.sh", "latest")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return "", fmt.Errorf("no API server, set KUBEBUILDER_ASSETS or repair this: %s: %w", source, err)
		}
		dir = strings.TrimSpace(string(out))
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		if _, err := exec.LookPath(filepath.Join(dir, name)); err != nil {
			return "", fmt.Errorf("no API server, %s says %s: %w", source, dir, err)
		}
	}
	return dir, nil
}

// Start starts a control plane from a folder with kube-apiserver and etcd. The
// caller must stop it.
func Start(ctx context.Context, assets string, servers int) (*Plane, error) {
	dir, err := os.MkdirTemp("", "control")
	if err != nil {
		return nil, err
	}
	p := &Plane{dir: dir}
	if err := p.start(ctx, assets, servers); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Plane) start(ctx context.Context, assets string, servers int) error {
	addresses, err := freeAddresses(2 + servers)
	if err != nil {
		return err
	}
	if err := p.writeCredentials(); err != nil {
		return err
	}
	p.Etcd = p.etcd(assets, addresses[0], addresses[1])
	if err := p.Etcd.Start(); err != nil {
		return err
	}
	for n, address := range addresses[2:] {
		s := p.server(assets, address, n)
		p.Servers = append(p.Servers, s)
		if err := s.Start(); err != nil {
			return err
		}
		if err := s.AwaitReady(ctx); err != nil {
			return err // the first makes what the others find: roles, priorities, CRDs
		}
	}
	return nil
}

// Empty takes away what etcd holds, which must have been killed: its next start is
// that of a cluster restored from a backup of nothing.
func (p *Plane) Empty() error { return os.RemoveAll(p.data()) }

func (p *Plane) data() string { return filepath.Join(p.dir, "etcd") }

// Stop ends all processes and removes their data.
func (p *Plane) Stop() error {
	for _, s := range append([]*Process{p.Etcd}, p.Servers...) {
		if s != nil {
			s.Kill()
		}
	}
	return os.RemoveAll(p.dir)
}

func (p *Plane) etcd(assets, clients, peers string) *Process {
	return &Process{
		Address: clients,
		log:     filepath.Join(p.dir, "etcd.log"),
		args: []string{
			filepath.Join(assets, "etcd"), "--data-dir=" + p.data(),
			"--listen-client-urls=http://" + clients, "--advertise-client-urls=http://" + clients,
			"--listen-peer-urls=http://" + peers, "--initial-advertise-peer-urls=http://" + peers,
			"--initial-cluster=default=http://" + peers,
			"--unsafe-no-fsync", // SIGKILL takes nothing that was written to the system
		},
	}
}

func (p *Plane) server(assets, address string, n int) *Process {
	_, port, _ := net.SplitHostPort(address)
	s := &Process{
		Address: address,
		log:     filepath.Join(p.dir, fmt.Sprintf("server%d.log", n)),
		args: []string{
			filepath.Join(assets, "kube-apiserver"), "--etcd-servers=http://" + p.Etcd.Address,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
			"--cert-dir=" + filepath.Join(p.dir, fmt.Sprintf("certificates%d", n)),
			"--token-auth-file=" + p.tokens(), "--authorization-mode=RBAC",
			"--service-account-issuer=https://localhost",
			"--service-account-key-file=" + p.key(), "--service-account-signing-key-file=" + p.key(),
			"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
			"--endpoint-reconciler-type=none",
		},
	}
	client := &http.Client{Timeout: 2 * time.Second}
	s.ready = func(ctx context.Context) bool { return s.isReady(ctx, client) }
	cfg := s.Config()
	if transport, err := rest.TransportFor(cfg); err == nil {
		client.Transport = transport
	}
	return s
}

func (p *Plane) tokens() string { return filepath.Join(p.dir, "tokens.csv") }
func (p *Plane) key() string    { return filepath.Join(p.dir, "account.key") }

// Config leads to an API server, for an administrator. It has no rate limit.
func (s *Process) Config() *rest.Config {
	return &rest.Config{
		Host: "https://" + s.Address, BearerToken: token, QPS: -1,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true}, // its certificate is its own
	}
}

// Start starts the process, where it was before.
func (s *Process) Start() error {
	log, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { _ = log.Close() }() // the process has its own
	s.cmd = exec.Command(s.args[0], s.args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive us
	return s.cmd.Start()
}

// Kill ends the process with SIGKILL and waits until it is gone.
func (s *Process) Kill() {
	if s.cmd == nil || s.cmd.Process == nil {
		return
	}
	_ = s.cmd.Process.Kill() // it may have ended by itself
	_ = s.cmd.Wait()
	s.cmd = nil
}

// AwaitReady waits until an API server answers /readyz with 200.
func (s *Process) AwaitReady(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, readyFor)
	defer cancel()
	for !s.ready(ctx) {
		select {
		case <-ctx.Done():
			log, _ := os.ReadFile(s.log)
			return fmt.Errorf("%s is not ready: %w\n%s", s.args[0], ctx.Err(), log[max(0, len(log)-2000):])
		case <-time.After(20 * time.Millisecond):
		}
	}
	return nil
}

func (s *Process) isReady(ctx context.Context, client *http.Client) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+s.Address+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := client.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
