// SPDX-License-Identifier: Apache-2.0

//go:build linux

package control

import (
	"context"
	"os"
	"testing"

	"k8s.io/client-go/discovery"
)

// A server that was killed is back at the same address, with its data.
func TestKill(t *testing.T) {
	ctx := context.Background()
	assets := os.Getenv("KUBEBUILDER_ASSETS")
	if assets == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set")
	}
	p, err := Start(ctx, assets, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(); err != nil {
			t.Error(err)
		}
	}()
	client := discovery.NewDiscoveryClientForConfigOrDie(p.Servers[0].Config())
	if _, err := client.ServerVersion(); err != nil {
		t.Error(err)
	}
	p.Servers[0].Kill()
	if _, err := client.ServerVersion(); err == nil {
		t.Error("a dead server answers")
	}
	if err := p.Servers[0].Start(); err != nil {
		t.Fatal(err)
	}
	if err := p.Servers[0].AwaitReady(ctx); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ServerVersion(); err != nil {
		t.Error(err)
	}
}
