// SPDX-License-Identifier: Apache-2.0

//go:build linux

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
	"os"
	"time"

	"k8s.io/client-go/util/keyutil"
)

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
