// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// The document has the kind no more, and whether it has gone cannot be read: the
// read's own failure is news in the snapshot, and no reason to read at once again.
func TestRunWhileServedDoubtIsPaced(t *testing.T) {
	eachServer(t, func(t *testing.T, server *fakeapi.Server) {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: 5 * time.Second})
		defer startMapper(t, m)()
		ctx, cancel := context.WithCancel(context.Background())
		canceled, returned := make(chan struct{}), make(chan error, 1)
		go func() {
			returned <- m.RunWhileServed(ctx, func(ctx context.Context) error {
				<-ctx.Done()
				close(canceled)
				return ctx.Err()
			}, fooKind)
		}()
		time.Sleep(10 * time.Second)

		server.SetLatency(10 * time.Millisecond)
		heal := server.SetFault(fakeapi.At("/apis/example.com/v1"), fakeapi.Status(503, 0))
		server.PutVersion("example.com", fakeVersion("v1", "Bar"))
		server.TakeRequests()
		time.Sleep(time.Minute)
		if n := len(server.TakeRequests()); n > 60 {
			t.Errorf("%d requests in a minute of doubt; want those of 12 refreshes and a few more", n)
		}
		heal()
		select {
		case <-canceled:
		case <-time.After(mostDoubt):
			t.Errorf("run goes on %v after the server can say that the kind has gone", mostDoubt)
		}
		cancel()
		if err := <-returned; err != nil {
			t.Error(err)
		}
	})
}

const mostDoubt = 31 * time.Second // as often as RunWhileServed asks in the end
