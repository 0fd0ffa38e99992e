// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/refresh"
)

// Failures follow each other also if the mapper pauses between its refreshes as long as it ever does, and each lasts
// as long as its requests may take. Otherwise a mapper that fails each time would never become unhealthy.
func TestFailureGapIsLongerThanAnyPause(t *testing.T) {
	const timeout = 30 * time.Second
	for _, test := range []struct {
		name    string
		options Options
		want    time.Duration
	}{
		{"lookups alone", Options{}, 2 * timeout},
		{"no MaxAge", Options{MaxAge: -time.Hour}, 2 * timeout},
		{"MaxAge", Options{MaxAge: 10 * time.Minute}, 20*time.Minute + 2*timeout},
		{"RefreshInterval", Options{RefreshInterval: time.Second}, refresh.MaxBackoff + 2*timeout},
		{"watches", Options{WatchAPIs: true}, refresh.MaxBackoff + 2*timeout},
		{"a long MaxAge, and watches", Options{MaxAge: time.Hour, WatchAPIs: true}, 2*time.Hour + 2*timeout},
		{"a long UnhealthyAfter", Options{WatchAPIs: true, UnhealthyAfter: 24 * time.Hour}, 24 * time.Hour},
	} {
		test.options.RequestTimeout = timeout
		if got := failureGap(test.options); got != test.want {
			t.Errorf("%s: failures follow each other within %v, want %v", test.name, got, test.want)
		}
	}
}
