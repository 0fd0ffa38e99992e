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

// Refused is a server that is not there. Over TCP the connection is accepted, and reset
// before the answer; net/http's client repeats such a request if the connection was
// used before.
func Refused() Fault {
	return Fault{name: "Refused", respond: func(exchange) (*http.Response, error) {
		return nil, connectionError("dial", "connect", syscall.ECONNREFUSED)
	}}
}

// ResetMidBody sends half of the true body and resets the connection.
func ResetMidBody() Fault {
	return Fault{name: "ResetMidBody", respond: func(e exchange) (*http.Response, error) {
		return e.broken(connectionError("read", "read", syscall.ECONNRESET))
	}}
}

// Truncated sends half of the true body, with the Content-Length of all of it.
func Truncated() Fault {
	return Fault{name: "Truncated", respond: func(e exchange) (*http.Response, error) {
		return e.broken(io.ErrUnexpectedEOF)
	}}
}

// TruncatedClean sends half of the true body as if that were all.
func TruncatedClean() Fault {
	return Fault{name: "TruncatedClean", respond: func(e exchange) (*http.Response, error) {
		resp, err := e.honest()
		if err != nil {
			return nil, err
		}
		resp.ContentLength /= 2
		resp.Body = io.NopCloser(io.LimitReader(resp.Body, resp.ContentLength))
		return resp, nil
	}}
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
	return Fault{name: "SlowDrip", respond: func(e exchange) (*http.Response, error) {
		resp, err := e.honest()
		if err != nil {
			return nil, err
		}
		setStream(resp, drip{e.req.Context(), interval, io.MultiReader(resp.Body, endless(' '))})
		return resp, nil
	}}
}

// Huge sends the true document in JSON, with n bytes more in a field that no
// client knows: valid, but too large. The bytes are made as they are read.
func Huge(n int64) Fault {
	return Fault{name: fmt.Sprintf("Huge(%d)", n), respond: func(e exchange) (*http.Response, error) {
		resp, err := e.honestJSON()
		if err != nil {
			return nil, err
		}
		const end = "}\n"
		start := io.LimitReader(resp.Body, resp.ContentLength-int64(len(end)))
		setStream(resp, io.MultiReader(start, padding(n, end)))
		return resp, nil
	}}
}

func connectionError(op, syscallName string, err error) error {
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}
	return &net.OpError{Op: op, Net: "tcp", Addr: address, Err: os.NewSyscallError(syscallName, err)}
}

// broken returns the true answer up to the middle of the body, and then the error.
func (e exchange) broken(err error) (*http.Response, error) {
	resp, honestErr := e.honest()
	if honestErr != nil {
		return nil, honestErr
	}
	half := io.LimitReader(resp.Body, resp.ContentLength/2)
	resp.Body = io.NopCloser(io.MultiReader(half, iotest.ErrReader(err)))
	return resp, nil
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

// endless reads the same byte over and over.
type endless byte

func (e endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = byte(e)
	}
	return len(p), nil
}
