// SPDX-License-Identifier: Apache-2.0

package report

import (
	"context"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// queue makes calls one after the other, in their order. Add does not wait for them. A call may be slow, and may use
// the mapper. The zero queue is ready to use.
type queue struct {
	mu      sync.Mutex // held for short work in memory only
	calls   []func()
	running bool
}

// maxQueued is how many calls may wait. If there are more, the oldest are dropped.
const maxQueued = 1024

// Add adds a call. It never blocks.
func (q *queue) Add(call func()) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == maxQueued {
		q.calls = q.calls[1:]
	}
	q.calls = append(q.calls, call)
	if !q.running {
		q.running = true
		go q.run()
	}
}

// Waiting returns how many calls wait.
func (q *queue) Waiting() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.calls)
}

// run makes the next call, and leaves the others to another goroutine, so none is lost if the call panics or ends its
// goroutine. A panic is logged with its stack: a report that nobody waits for must not end the program.
func (q *queue) run() {
	call := q.next()
	if call == nil {
		return
	}
	defer func() {
		go q.run()
		if p := recover(); p != nil {
			for _, handle := range utilruntime.PanicHandlers {
				handle(context.Background(), p)
			}
		}
	}()
	call()
}

func (q *queue) next() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.calls) == 0 {
		q.running = false
		q.calls = nil
		return nil
	}
	call := q.calls[0]
	q.calls[0] = nil
	q.calls = q.calls[1:]
	return call
}
