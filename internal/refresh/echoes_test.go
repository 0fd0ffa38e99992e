// SPDX-License-Identifier: Apache-2.0

package refresh

import (
	"slices"
	"testing"
	"time"
)

// An echo is left out where the refreshes by interval come as often.
func TestEchoesFrom(t *testing.T) {
	now := time.Unix(1000, 0)
	for interval, want := range map[time.Duration][]int{
		0: {2, 8, 20, 70}, time.Second: nil, 2 * time.Second: nil, 6 * time.Second: {2}, 7 * time.Second: {2, 8},
		50 * time.Second: {2, 8, 20}, 51 * time.Second: {2, 8, 20, 70},
	} {
		var got []int
		for _, echo := range echoesFrom(now, interval) {
			got = append(got, int(echo.Sub(now).Seconds()))
		}
		if !slices.Equal(got, want) {
			t.Errorf("interval %v: echoes after %v seconds, want %v", interval, got, want)
		}
	}
}
