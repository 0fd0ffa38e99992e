// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// A short run finds nothing.
func TestShortRun(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set")
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	if err := run(t.Context(), options{kills: 2, etcd: 1}, t.TempDir()); err != nil {
		t.Error(err)
	}
}

// What the load asks for as never served is not served throughout, and not churned.
func TestNeverIsNever(t *testing.T) {
	for _, gvk := range never() {
		for _, s := range steady() {
			if s.gvk == gvk {
				t.Errorf("%s is served throughout", gvk)
			}
		}
		for _, k := range churned() {
			for _, v := range k.versions {
				if k.gvk(v) == gvk {
					t.Errorf("%s comes and goes", gvk)
				}
			}
		}
	}
}

// A view follows what a subscriber is told.
func TestView(t *testing.T) {
	v := newView(0)
	gvk := schema.GroupVersionKind{Group: "steady.example.com", Version: "v1", Kind: "Rock"}
	v.served[gvk] = describe("rocks", true)
	if !v.is(map[schema.GroupVersionKind]string{gvk: "rocks true"}) || v.is(nil) || v.is(map[schema.GroupVersionKind]string{gvk: "rocks false"}) {
		t.Error("a view is not what it is")
	}
}
