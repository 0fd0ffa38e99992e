// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"time"
)

// view is what the program knows of the API server, and how it came to know.
// There are two: the RESTMapper of the fork; and, for comparison, with the build
// tag stock, a ping, and a mapper that nothing can be asked of.
type view interface {
	// Health sends no request: the view reads the server of its own accord.
	Health() health
	// Repair reads the server anew, and returns nil if that went well.
	Repair(ctx context.Context) error
}

// health is how reads of the server have gone. The zero value means that there was
// none yet.
type health struct {
	LastSuccess  time.Time
	FailingSince time.Time // zero while reads succeed
	Reason       error     // nil while they do
}
