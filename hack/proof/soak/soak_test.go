// SPDX-License-Identifier: Apache-2.0

package main

import (
	"log/slog"
	"math"
	"os"
	"testing"
	"time"

	"k8s.io/klog/v2"
)

// A short run, which proves little but that the program works.
func TestShortRun(t *testing.T) {
	if os.Getenv("KUBEBUILDER_ASSETS") == "" {
		t.Skip("KUBEBUILDER_ASSETS is not set")
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	o := options{lasting: 12 * time.Second, mappers: 5, rate: 500}
	if err := run(t.Context(), o, t.TempDir()); err != nil {
		t.Error(err)
	}
}

func TestSlope(t *testing.T) {
	var hours, flat, rising []float64
	for n := range 100 {
		hours = append(hours, float64(n)/100)
		noise := float64(n%3 - 1)
		flat, rising = append(flat, 50+noise), append(rising, 50+20*float64(n)/100+noise)
	}
	if s := slopeOf(hours, flat); math.Abs(s.perHour) > 2*s.err || math.Abs(s.mean-50) > 0.1 {
		t.Errorf("flat: %+v", s)
	}
	if s := slopeOf(hours, rising); math.Abs(s.perHour-20) > 2*s.err || s.err > 1 {
		t.Errorf("rising: %+v", s)
	}
}

func TestQuantile(t *testing.T) {
	var h histogram
	for n := range 1000 {
		h.add(time.Duration(n+1) * time.Microsecond)
	}
	for q, want := range map[float64]time.Duration{0.5: 500 * time.Microsecond, 0.99: 990 * time.Microsecond} {
		if got := h.quantile(q); got < want || got > want*11/10 {
			t.Errorf("%v: %v", q, got)
		}
	}
}
