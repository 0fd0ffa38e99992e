// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"syscall"
	"testing/iotest"
	"time"
)

// Refused is a server that is not there.
func Refused() Fault {
	return always("Refused", func() (*http.Response, error) {
		return nil, connectionError("dial", "connect", syscall.ECONNREFUSED)
	})
}

// ResetMidBody sends half of the true body and resets the connection.
func ResetMidBody() Fault {
	return broken("ResetMidBody", connectionError("read", "read", syscall.ECONNRESET))
}

// Truncated sends half of the true body, with the Content-Length of all of it.
func Truncated() Fault { return broken("Truncated", io.ErrUnexpectedEOF) }

// broken sends the true answer up to the middle of the body, and then the error.
func broken(name string, err error) Fault {
	return altered(name, func(_ exchange, resp *http.Response) {
		half := io.LimitReader(resp.Body, resp.ContentLength/2)
		resp.Body = io.NopCloser(io.MultiReader(half, iotest.ErrReader(err)))
	})
}

// TruncatedClean sends half of the true body as if that were all.
func TruncatedClean() Fault {
	return altered("TruncatedClean", func(_ exchange, resp *http.Response) {
		resp.ContentLength /= 2
		resp.Body = io.NopCloser(io.LimitReader(resp.Body, resp.ContentLength))
	})
}

// Timeout never answers: it waits until the request's context ends.
func Timeout() Fault {
	return Fault{name: "Timeout", respond: func(e exchange) (*http.Response, error) {
		<-e.req.Context().Done()
		return nil, e.req.Context().Err()
	}}
}

// SlowDrip sends the true body one byte each interval, and then white space for
// ever, until the request's context ends.
func SlowDrip(interval time.Duration) Fault {
	return altered("SlowDrip", func(e exchange, resp *http.Response) {
		setStream(resp, drip{e.req.Context(), interval, io.MultiReader(resp.Body, blanks{})})
	})
}

// Huge sends the true document in JSON, and n bytes of white space after it: valid, but too
// large. The bytes are made as they are read.
func Huge(n int64) Fault {
	return Fault{name: fmt.Sprintf("Huge(%d)", n), respond: func(e exchange) (*http.Response, error) {
		req := e.req.Clone(e.req.Context())
		req.Header.Set("Accept", e.form().json().contentType())
		resp, err := exchange{req, e.world}.honest()
		if err == nil {
			setStream(resp, io.MultiReader(resp.Body, io.LimitReader(blanks{}, n)))
		}
		return resp, err
	}}
}

func connectionError(op, syscallName string, err error) error {
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}
	return &net.OpError{Op: op, Net: "tcp", Addr: address, Err: os.NewSyscallError(syscallName, err)}
}

// drip reads one byte each interval.
type drip struct {
	ctx      context.Context
	interval time.Duration
	source   io.Reader
}

func (d drip) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	if err := sleep(d.ctx, d.interval); err != nil {
		return 0, err
	}
	return d.source.Read(p[:1])
}

// blanks are white space without end.
type blanks struct{}

func (blanks) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	return len(p), nil
}
