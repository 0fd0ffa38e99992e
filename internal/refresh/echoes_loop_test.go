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
func TestEchoes(t *testing.T) {
	r := &recorder{}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
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
			inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
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

// Echoes that come due while a refresh is under way are one, and it leaves the
// server a pause.
func TestEchoesOfSlowServer(t *testing.T) {
	r := &recorder{takes: 10 * time.Second}
	inLoop(t, 0, r, func(t *testing.T, bell *Doorbell) {
		time.Sleep(time.Hour)
		start := time.Now()
		bell.RingEvent()
		time.Sleep(time.Hour)
		second := settle + 10*time.Second + settle
		wantTimes(t, r.since(start), settle, second, second+10*time.Second+settle, settle+70*time.Second)
	})
}

// If the interval is shorter, there are no echoes.
func TestEchoesWithInterval(t *testing.T) {
	r := &recorder{}
	inLoop(t, time.Second, r, func(t *testing.T, bell *Doorbell) {
		start := time.Now()
		bell.RingEvent()
		time.Sleep(2 * time.Minute)
		times := r.since(start)
		for i := 2; i < len(times); i++ {
			if gap := times[i] - times[i-1]; gap < 900*time.Millisecond || gap > time.Second {
				t.Errorf("%v after %v", gap, times[i-1])
			}
		}
	})
}
