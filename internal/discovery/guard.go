// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"
	"time"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// abandonDelay is how long after its context a request may take to end.
const abandonDelay = 500 * time.Millisecond

// guarded calls send, which runs code of the program: transports, and a rate limiter. Reads are made on goroutines of
// the mapper, where no caller can recover from a panic, as controller-runtime does around a reconciler. So guarded
// returns an error if send panics or ends its goroutine. A panic is logged with its stack.
//
// It does not wait much longer than until ctx ends. If send goes on after that, the value is the zero value, and the
// caller must not use what send uses.
func guarded[T any](ctx context.Context, send func() (T, error)) (T, error) {
	type outcome struct {
		value T
		err   error
	}
	ended := make(chan outcome, 1)
	go func() {
		o := outcome{err: errors.New("the HTTP transport called runtime.Goexit")} // as the FailNow of a test does
		defer func() {
			if p := recover(); p != nil {
				o.err = errors.New("the HTTP transport panicked: " + onlyAllowedWords(fmt.Sprint(p)))
				for _, handle := range utilruntime.PanicHandlers {
					handle(ctx, p)
				}
			}
			ended <- o
		}()
		o.value, o.err = send()
	}()
	select {
	case o := <-ended:
		return o.value, o.err
	case <-ctx.Done():
	}
	select {
	case o := <-ended:
		return o.value, o.err
	case <-time.After(abandonDelay):
		return *new(T), errors.New("the HTTP transport does not stop when the request is cancelled")
	}
}

// Sleep waits for d, or until ctx ends.
func Sleep(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
