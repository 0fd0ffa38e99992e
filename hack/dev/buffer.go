// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"sync"
)

// buffer keeps what several write to it. A bytes.Buffer would lose lines: a command
// reads into it for as long as it runs, and drops what others wrote meanwhile.
type buffer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (b *buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}
