// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

var (
	// errGoexit is the error of a request whose transport has called runtime.Goexit, as the
	// FailNow of a test does.
	errGoexit = errors.New("the HTTP transport has ended its goroutine")
	// errAbandoned is the error of a request that goes on after its context has ended.
	errAbandoned = errors.New("the HTTP transport does not stop when the request is cancelled")
)

// abandonAfter is how long after its context a request may take to end.
const abandonAfter = 500 * time.Millisecond

// outcome is what a call of send has returned.
type outcome[T any] struct {
	value T
	err   error
}

// guarded calls send, which runs code of the user: transports, and a rate limiter. Reads
// are made on goroutines of the mapper, where no caller can recover from a panic, as
// controller-runtime does around a reconciler. So guarded returns an error if send panics
// or ends its goroutine. A panic is logged with its stack.
//
// It does not wait much longer than until ctx ends. If it returns errAbandoned, send goes
// on, and the caller must not use what send uses.
func guarded[T any](ctx context.Context, send func() (T, error)) (T, error) {
	ended := start(ctx, send)
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-timer.C:
		return *new(T), errAbandoned
	}
}

func start[T any](ctx context.Context, send func() (T, error)) <-chan outcome[T] {
	ended := make(chan outcome[T], 1)
	go func() {
		o := outcome[T]{err: errGoexit}
		defer func() {
			if p := recover(); p != nil {
				o.err = fmt.Errorf("the HTTP transport panicked: %v", p)
				for _, handle := range utilruntime.PanicHandlers {
					handle(ctx, p)
				}
			}
			ended <- o
		}()
		o.value, o.err = send()
	}()
	return ended
}
