// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package refresh

import (
	"slices"
	"testing"
	"time"
)

// The document may show the change of an event late: each event is answered again for
// more than a minute. A watch that opens is no event.
func TestEventIsAnsweredAgainForAMinute(t *testing.T) {
	r := &recorder{}
	inLoop(t, forever, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		bell.RingEvent()
		const later = 15 * time.Second // so that no two refreshes are less than spacing apart, whatever is random
		time.Sleep(later)
		bell.RingEvent()
		bell.Ring()
		time.Sleep(time.Hour)
		want := []time.Duration{settle, settle + later}
		for _, echo := range []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 70 * time.Second} {
			want = append(want, settle+echo, settle+later+echo)
		}
		slices.Sort(want)
		wantTimes(t, r.since(start), want...)
	})
}

// A ring that is of no event takes nothing from the echoes of one, whenever it comes.
func TestEchoesBesideRings(t *testing.T) {
	for _, ring := range []time.Duration{4 * time.Second, 15 * time.Second, 30 * time.Second, time.Minute} {
		t.Run(ring.String(), func(t *testing.T) {
			r := &recorder{}
			inLoop(t, forever, r, func(t *testing.T, bell *Doorbell) {
				time.Sleep(time.Hour)
				start := time.Now()
				bell.RingEvent()
				answered := awaitRefresh(r)
				time.Sleep(ring)
				bell.Ring()
				time.Sleep(time.Hour)
				want := []time.Duration{settle, answered + ring + settle}
				for _, echo := range []time.Duration{2 * time.Second, 8 * time.Second, 20 * time.Second, 70 * time.Second} {
					want = append(want, answered+echo)
				}
				slices.Sort(want)
				wantTimes(t, r.since(start), want...)
			})
		})
	}
}

// An echo is left out where the refreshes by interval come as often.
func TestEchoesFrom(t *testing.T) {
	now := time.Unix(1000, 0)
	for interval, want := range map[time.Duration][]int{
		forever: {2, 8, 20, 70}, time.Second: nil, 2 * time.Second: nil, 6 * time.Second: {2}, 7 * time.Second: {2, 8},
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
