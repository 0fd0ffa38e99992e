// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"fmt"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// errGoexit is the error of a request whose transport has called runtime.Goexit, as the
// FailNow of a test does.
var errGoexit = errors.New("the HTTP transport has ended its goroutine")

// Guarded calls send, which runs code of the user: transports, and a rate limiter. Reads
// are made on goroutines of the mapper, where no caller can recover from a panic, as
// controller-runtime does around a reconciler. So Guarded returns an error if send panics
// or ends its goroutine. A panic is logged with its stack.
func Guarded(ctx context.Context, send func() error) (err error) {
	done := make(chan struct{})
	err = errGoexit
	go func() {
		defer close(done)
		defer func() {
			if p := recover(); p != nil {
				err = fmt.Errorf("the HTTP transport panicked: %v", p)
				for _, handle := range utilruntime.PanicHandlers {
					handle(ctx, p)
				}
			}
		}()
		err = send()
	}()
	<-done
	return err
}
