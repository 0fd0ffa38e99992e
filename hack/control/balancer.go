// SPDX-License-Identifier: Apache-2.0

//go:build linux

package control

import (
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"sync/atomic"

	"k8s.io/client-go/rest"
)

// Balancer is one address for all API servers of a control plane. It sends each
// request to the next of them, whatever that one's state, and answers 502 for one
// that is down: the worst that may stand before a server.
type Balancer struct {
	server *httptest.Server
	turn   atomic.Uint64
}

// NewBalancer makes a balancer. The caller must close it.
func (p *Plane) NewBalancer() (*Balancer, error) {
	cfg := p.Servers[0].Config()
	transport, err := rest.TransportFor(&rest.Config{TLSClientConfig: cfg.TLSClientConfig})
	if err != nil {
		return nil, err
	}
	b := &Balancer{}
	b.server = httptest.NewServer(&httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			s := p.Servers[b.turn.Add(1)%uint64(len(p.Servers))]
			r.SetURL(&url.URL{Scheme: "https", Host: s.Address})
		},
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	})
	return b, nil
}

// Config leads through the balancer, for an administrator.
func (b *Balancer) Config() *rest.Config {
	return &rest.Config{Host: b.server.URL, BearerToken: token, QPS: -1}
}

// Close ends the balancer and all connections.
func (b *Balancer) Close() {
	b.server.CloseClientConnections()
	b.server.Close()
}
