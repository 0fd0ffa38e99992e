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
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
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
	"k8s.io/client-go/util/keyutil"
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

	host string // the name of its machine; "" is that of this one
	args []string
	log  string // file
	cmd  *exec.Cmd
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
	// An administrator's token. The server also needs a key for the tokens of
	// service accounts, which nobody uses here.
	key, err := keyutil.MakeEllipticPrivateKeyPEM()
	if err != nil {
		return err
	}
	if err := errors.Join(
		os.WriteFile(p.path("account.key"), key, 0o600),
		os.WriteFile(p.path("tokens.csv"), []byte(token+`,admin,admin,"system:masters"`+"\n"), 0o600),
	); err != nil {
		return err
	}
	p.Etcd = p.etcd(assets, addresses[0], addresses[1])
	if err := p.Etcd.Start(); err != nil {
		return err
	}
	for _, address := range addresses[2:] {
		s := p.server(assets, address)
		p.Servers = append(p.Servers, s)
		if err := s.Start(); err != nil {
			return err
		}
		if err := s.AwaitReady(ctx); err != nil {
			return err // the first creates roles, priorities and CRDs, which the others find
		}
	}
	return nil
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

// path is a file or a folder of the control plane.
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

func (p *Plane) server(assets, address string) *Process {
	_, port, _ := net.SplitHostPort(address)
	return &Process{
		Address: address,
		log:     p.path("server" + port + ".log"),
		args: []string{
			filepath.Join(assets, "kube-apiserver"), "--etcd-servers=http://" + p.Etcd.Address,
			"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" + port,
			"--cert-dir=" + p.path("certificates"+port),
			"--token-auth-file=" + p.path("tokens.csv"), "--authorization-mode=RBAC",
			"--service-account-issuer=https://localhost",
			"--service-account-key-file=" + p.path("account.key"), "--service-account-signing-key-file=" + p.path("account.key"),
			"--service-cluster-ip-range=10.0.0.0/24", "--disable-admission-plugins=ServiceAccount",
			"--endpoint-reconciler-type=none",
		},
	}
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

// StartPeers starts a control plane whose API servers list in their documents what only
// another of them serves (KEP-4020, on by default from 1.36): one API server for each of
// configs, which is its --runtime-config. Only root may call it: each server needs a machine
// name of its own, because its identity is made from it. The caller must stop the plane.
func StartPeers(ctx context.Context, assets string, configs ...string) (*Plane, error) {
	p, err := Start(ctx, assets, 0)
	if err != nil {
		return nil, err
	}
	if err := p.startPeers(ctx, assets, configs); err != nil {
		return nil, errors.Join(err, p.Stop())
	}
	return p, nil
}

func (p *Plane) startPeers(ctx context.Context, assets string, configs []string) error {
	if err := p.certify(); err != nil {
		return err
	}
	addresses, err := freeAddresses(len(configs))
	if err != nil {
		return err
	}
	for i, address := range addresses {
		s := p.server(assets, address)
		_, port, _ := net.SplitHostPort(address)
		s.host = fmt.Sprintf("peer%d", i)
		s.args = append(s.args,
			"--tls-cert-file="+p.path("peer.crt"), "--tls-private-key-file="+p.path("peer.key"), "--client-ca-file="+p.path("peer.crt"),
			"--proxy-client-cert-file="+p.path("peer.crt"), "--proxy-client-key-file="+p.path("peer.key"),
			"--requestheader-client-ca-file="+p.path("peer.crt"), "--requestheader-allowed-names=peer", "--requestheader-username-headers=X-Remote-User",
			"--requestheader-group-headers=X-Remote-Group", "--requestheader-extra-headers-prefix=X-Remote-Extra-",
			"--peer-ca-file="+p.path("peer.crt"), "--peer-advertise-ip=127.0.0.1", "--peer-advertise-port="+port,
		)
		if configs[i] != "" {
			s.args = append(s.args, "--runtime-config="+configs[i])
		}
		p.Servers = append(p.Servers, s)
		if err := errors.Join(s.Start(), s.AwaitReady(ctx)); err != nil {
			return err
		}
	}
	return nil
}

// certify writes a certificate for all servers, which is its own authority: by it they trust
// one another.
func (p *Plane) certify() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	keyPEM, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return err
	}
	now := time.Now()
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "peer"}, NotBefore: now.Add(-time.Hour), NotAfter: now.Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature, BasicConstraintsValid: true, IsCA: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"kubernetes.default.svc"}, // as peers call one another
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, &key.PublicKey, key)
	if err != nil {
		return err
	}
	text := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	return errors.Join(os.WriteFile(p.path("peer.crt"), text, 0o600), os.WriteFile(p.path("peer.key"), keyPEM, 0o600))
}
