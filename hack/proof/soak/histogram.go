// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"sync/atomic"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

// histogram counts durations in bins that are a twentieth wider each.
type histogram struct {
	bins [600]atomic.Int64
	most atomic.Int64
}

const binWidth = 1.05

func (h *histogram) add(d time.Duration) {
	n := int(math.Log(float64(max(d, 1))) / math.Log(binWidth))
	h.bins[min(n, len(h.bins)-1)].Add(1)
	for most := h.most.Load(); int64(d) > most && !h.most.CompareAndSwap(most, int64(d)); {
		most = h.most.Load()
	}
}

// quantile returns the upper end of the bin in which it lies.
func (h *histogram) quantile(q float64) time.Duration {
	var all, seen int64
	for n := range h.bins {
		all += h.bins[n].Load()
	}
	for n := range h.bins {
		if seen += h.bins[n].Load(); float64(seen) >= q*float64(all) {
			return time.Duration(math.Pow(binWidth, float64(n+1)))
		}
	}
	return 0
}

func (h *histogram) row(name string) []string {
	return []string{
		name, report.Rounded(h.quantile(0.5)), report.Rounded(h.quantile(0.99)), report.Rounded(h.quantile(0.999)),
		report.Rounded(time.Duration(h.most.Load())),
	}
}

// slope is how a line through the points rises, with its standard error.
type slope struct{ perHour, err, mean float64 }

// slopeOf fits a line by least squares. Samples that follow on each other are alike,
// so the true error is larger than the one returned.
func slopeOf(hours, values []float64) slope {
	n := float64(len(hours))
	if n < 3 {
		return slope{math.NaN(), math.NaN(), math.NaN()}
	}
	var x, y float64
	for i := range hours {
		x, y = x+hours[i]/n, y+values[i]/n
	}
	var xx, xy float64
	for i := range hours {
		xx += (hours[i] - x) * (hours[i] - x)
		xy += (hours[i] - x) * (values[i] - y)
	}
	rise := xy / xx
	var rest float64
	for i := range hours {
		r := values[i] - y - rise*(hours[i]-x)
		rest += r * r
	}
	return slope{rise, math.Sqrt(rest / (n - 2) / xx), y}
}
