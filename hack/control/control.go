// SPDX-License-Identifier: Apache-2.0

//go:build linux

// Package control runs real control planes: one etcd and any number of API servers.
// Each can be killed, and started again at its address and with its data. envtest
// starts only one API server, and cannot do that.
package control

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
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

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/keyutil"
)

const (
	token    = "proof"
	peerName = "kubernetes.default.svc"
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

	host string // the name of its machine; "" is that of this one
	args []string
	log  string // file
	cmd  *exec.Cmd
}

// Assets returns the folder that holds kube-apiserver and etcd: $KUBEBUILDER_ASSETS,
// or what hack/envtest.sh says, which may take minutes the first time. It is called
// in a folder of hack.
func Assets() (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		return dir, nil
	}
	cmd := exec.Command("../envtest.sh", "latest")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("no API server, set KUBEBUILDER_ASSETS or repair hack/envtest.sh latest: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

// Start starts a control plane from a folder with kube-apiserver and etcd. The
// caller must stop it.
func Start(ctx context.Context, assets string, servers int) (*Plane, error) {
	return start(ctx, assets, make([]string, servers), nil)
}

// StartPeers starts a control plane whose API servers list in their documents what only
// another of them serves (KEP-4020, on by default from 1.36): one API server for each of
// configs, which is its --runtime-config. Only root may call it: each server needs a machine
// name of its own, because its identity is made from it. The caller must stop the plane.
func StartPeers(ctx context.Context, assets string, configs ...string) (*Plane, error) {
	return start(ctx, assets, configs, (*Plane).joinPeers)
}

func start(ctx context.Context, assets string, configs []string, prepare func(*Plane, *Process)) (*Plane, error) {
	dir, err := os.MkdirTemp("", "control")
	if err != nil {
		return nil, err
	}
	p := &Plane{dir: dir}
	addresses, err := freeAddresses(2 + len(configs))
	if err == nil {
		err = p.writeSecrets()
	}
	if err == nil {
		p.Etcd = p.etcd(assets, addresses[0], addresses[1])
		err = p.Etcd.Start()
	}
	for i, config := range configs {
		if err != nil {
			break
		}
		s := p.server(assets, addresses[2+i], config)
		if prepare != nil {
			prepare(p, s)
		}
		p.Servers = append(p.Servers, s)
		if err = s.Start(); err == nil {
			err = s.AwaitReady(ctx) // the first creates roles, priorities and CRDs, which the others find
		}
	}
	if err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

// writeSecrets writes an administrator's token, a key for the tokens of service accounts, which
// nobody uses here, and a certificate of that key, by which peers trust one another. It is its
// own authority, and has the name by which peers call one another.
func (p *Plane) writeSecrets() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	own, err1 := cert.NewSelfSignedCACert(cert.Config{CommonName: peerName}, key)
	keyPEM, err2 := keyutil.MarshalPrivateKeyToPEM(key)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	certPEM, err := cert.EncodeCertificates(own)
	return errors.Join(
		err,
		os.WriteFile(p.path("peer.crt"), certPEM, 0o600),
		os.WriteFile(p.path("key"), keyPEM, 0o600),
		os.WriteFile(p.path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600),
	)
}

// freeAddresses returns n different addresses on which nobody listens now.
func freeAddresses(n int) ([]string, error) {
	var addresses []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }()
		addresses = append(addresses, l.Addr().String())
	}
	return addresses, nil
}

func (p *Plane) path(name string) string { return filepath.Join(p.dir, name) }

// Empty deletes etcd's data. Kill etcd before. At its next start the cluster looks
// as if it was restored from an empty backup.
func (p *Plane) Empty() error { return os.RemoveAll(p.path("etcd")) }

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
		log:     p.path("etcd.log"),
		args: []string{
			filepath.Join(assets, "etcd"), "--data-dir=" + p.path("etcd"),
			"--listen-client-urls=http://" + clients, "--advertise-client-urls=http://" + clients,
			"--listen-peer-urls=http://" + peers, "--initial-advertise-peer-urls=http://" + peers,
			"--initial-cluster=default=http://" + peers,
			"--unsafe-no-fsync", // SIGKILL takes nothing that was written to the system
		},
	}
}

// server is an API server. Config is what it takes for --runtime-config, which may be "".
func (p *Plane) server(assets, address, config string) *Process {
	_, port, _ := net.SplitHostPort(address)
	return &Process{
		Address: address,
		log:     p.path("server" + port + ".log"),
		args: []string{
			filepath.Join(assets, "kube-apiserver"), "--etcd-servers=http://" + p.Etcd.Address,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
			"--cert-dir=" + p.path("certificates"+port), "--runtime-config=" + config,
			"--token-auth-file=" + p.path("tokens.csv"), "--authorization-mode=RBAC",
			"--service-account-issuer=https://localhost",
			"--service-account-key-file=" + p.path("key"), "--service-account-signing-key-file=" + p.path("key"),
			"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
			"--endpoint-reconciler-type=none",
		},
	}
}

// joinPeers makes a server, before it is started, one of those that know each other.
func (p *Plane) joinPeers(s *Process) {
	host, port, _ := net.SplitHostPort(s.Address)
	certificate, key := p.path("peer.crt"), p.path("key")
	s.host = "peer" + port
	s.args = append(
		s.args,
		"--tls-cert-file="+certificate,
		"--tls-private-key-file="+key,
		"--client-ca-file="+certificate,
		"--proxy-client-cert-file="+certificate,
		"--proxy-client-key-file="+key,
		"--requestheader-client-ca-file="+certificate,
		"--requestheader-allowed-names="+peerName,
		"--requestheader-username-headers=X-Remote-User",
		"--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--peer-ca-file="+certificate,
		"--peer-advertise-ip="+host,
		"--peer-advertise-port="+port,
	)
}

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
	args := s.args
	if s.host != "" {
		args = append([]string{"/bin/sh", "-c", `hostname "$0" && exec "$@"`, s.host}, args...)
	}
	s.cmd = exec.Command(args[0], args[1:]...)
	s.cmd.Stdout, s.cmd.Stderr = log, log
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it must not outlive us
	if s.host != "" {
		s.cmd.SysProcAttr.Cloneflags = syscall.CLONE_NEWUTS
	}
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
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		return err
	}
	client.Timeout = 2 * time.Second
	ready := func(context.Context) (bool, error) {
		resp, err := client.Get("https://" + s.Address + "/readyz")
		if err != nil {
			return false, nil // it starts
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK, nil
	}
	if err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, readyFor, true, ready); err != nil {
		log, _ := os.ReadFile(s.log)
		return fmt.Errorf("%s is not ready: %w\n%s", s.args[0], err, log[max(0, len(log)-2000):])
	}
	return nil
}
