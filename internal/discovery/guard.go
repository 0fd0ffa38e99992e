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

// Guarded calls send, which runs code of the user: transports, and a rate limiter. Reads
// are made on goroutines of the mapper, where no caller can recover from a panic, as
// controller-runtime does around a reconciler. So Guarded returns an error if send panics
// or ends its goroutine. A panic is logged with its stack.
func Guarded(ctx context.Context, send func() error) error { return <-guarded(ctx, send) }

// guardedUntil is Guarded, but it does not wait much longer than until ctx ends. If it
// returns errAbandoned, send goes on.
func guardedUntil(ctx context.Context, send func() error) error {
	ended := guarded(ctx, send)
	select {
	case err := <-ended:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(abandonAfter)
	defer timer.Stop()
	select {
	case err := <-ended:
		return err
	case <-timer.C:
		return errAbandoned
	}
}

func guarded(ctx context.Context, send func() error) <-chan error {
	ended := make(chan error, 1)
	go func() {
		err := errGoexit
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the HTTP transport panicked: %v", p)
				for _, handle := range utilruntime.PanicHandlers {
					handle(ctx, p)
				}
			}
			ended <- err
		}()
		err = send()
	}()
	return ended
}
