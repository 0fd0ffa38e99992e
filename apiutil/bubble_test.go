// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"bytes"
	"regexp"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// inBubble runs test in a bubble. Then it gives requests that nobody waits for any more
// the time to end, by their timeouts.
func inBubble(t *testing.T, test func(t *testing.T)) {
	t.Helper()
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	synctest.Test(t, func(t *testing.T) {
		defer time.Sleep(10 * time.Minute)
		test(t)
	})
}

// goroutines counts those of the caller's bubble. Other tests may run beside it.
func goroutines() int {
	stacks := make([]byte, 16<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	bubble := regexp.MustCompile(`synctest bubble \d+`).Find(stacks) // the caller's stack is the first
	return bytes.Count(stacks, append(bubble, ']'))
}

// eachServer runs test with a server of each mode, in a bubble.
func eachServer(t *testing.T, test func(t *testing.T, server *fakeapi.Server)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) { test(t, newServer(forms)) })
	})
}

// mostPatient is for how long a lookup of something known waits for what hangs.
const mostPatient = 3 * time.Second

// latency is what a request takes where time is counted in requests.
const latency = 20 * time.Millisecond

// eachWarmMapper runs test in both modes, with a mapper that knows all of a server
// with 20 groups of so many versions, and whose requests are watched.
func eachWarmMapper(t *testing.T, versions int, test func(t *testing.T, server *fakeapi.Server, m *apiutil.DynamicRESTMapper)) {
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		inBubble(t, func(t *testing.T) {
			server := fakeapi.New(fakeapi.Typical(20, versions, 2)...)
			server.SetForms(forms)
			m, _ := newLoggedMapper(t, server)
			if _, err := m.ResourceSingularizer("pods"); err != nil {
				t.Fatal(err)
			}
			server.SetLatency(latency)
			server.TakeRequests()
			test(t, server, m)
		})
	})
}

// allAtOnce calls lookup n times at once and returns how long that takes.
func allAtOnce(n int, lookup func(i int)) time.Duration {
	start := time.Now()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { lookup(i) })
	}
	wg.Wait()
	return time.Since(start)
}
