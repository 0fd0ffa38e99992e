// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// view is the source of what the program knows of the API server. There are two
// implementations: the RESTMapper of the fork; and, for comparison, with the build tag
// stock, a ping beside a mapper that reports nothing about itself.
type view interface {
	// Health returns how reads have gone. It sends no request: the view reads the server
	// by itself.
	Health() health
	// Repair reads the server again, and returns nil if that succeeds.
	Repair(ctx context.Context) error
}

// health is how reads of the server have gone. The zero value means that there has been
// no read yet.
type health struct {
	LastSuccess  time.Time
	FailingSince time.Time // zero while reads succeed
	Reason       error     // nil while they do
}
