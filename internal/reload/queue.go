// SPDX-License-Identifier: Apache-2.0

package reload

import "sync"

// Queue makes calls for those who must not wait for them, one after the other in
// their order. What is called may take its time, and may use the mapper. The zero
// Queue is ready.
type Queue struct {
	mu      sync.Mutex // held for short work in memory only
	calls   []func()
	running bool
}

// mostQueued is how many calls may wait. The oldest are dropped where calls take
// longer than what they are about.
const mostQueued = 1024

// Add never blocks.
func (q *Queue) Add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == mostQueued {
		q.calls = q.calls[1:]
	}
	q.calls = append(q.calls, call)
	if !q.running {
		q.running = true
		go q.run()
	}
}

// run ends when nothing is left to call. A call that ends the goroutine leaves the
// others to the next.
func (q *Queue) run() {
	ended := false
	defer func() {
		if !ended {
			go q.run()
		}
	}()
	for call := q.next(); call != nil; call = q.next() {
		call()
	}
	ended = true
}

func (q *Queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		q.running, q.calls = false, nil
		return nil
	}
	call := q.calls[0]
	q.calls[0] = nil
	q.calls = q.calls[1:]
	return call
}
