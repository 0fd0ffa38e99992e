// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"slices"
	"sync"
	"time"
)

// lines are the latest lines of the log, for the debug page. The zero value is ready to use.
type lines struct {
	mu        sync.Mutex // held for short work in memory only
	byMessage map[string][]line
}

// line is a line of the log, with its keys and values in turn.
type line struct {
	at            time.Time
	keysAndValues []any
}

// maxLines is how many lines are kept of each message.
const maxLines = 50

// add keeps a line. It owns keysAndValues.
func (l *lines) add(message string, keysAndValues []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byMessage == nil {
		l.byMessage = map[string][]line{}
	}
	kept := l.byMessage[message]
	if len(kept) == maxLines {
		copy(kept, kept[1:])
		kept = kept[:maxLines-1]
	}
	l.byMessage[message] = append(kept, line{time.Now(), keysAndValues})
}

// all returns the lines of each message by their keys, the latest first. They belong to the caller.
func (l *lines) all() map[string][]map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string][]map[string]any{}
	for message, kept := range l.byMessage {
		for _, line := range slices.Backward(kept) {
			all[message] = append(all[message], line.fields())
		}
	}
	return all
}

// fields returns the values of a line by their keys, and its time.
func (l line) fields() map[string]any {
	fields := map[string]any{"time": l.at}
	for i := 0; i < len(l.keysAndValues); i += 2 {
		key := fmt.Sprint(l.keysAndValues[i])
		fields[key] = l.keysAndValues[i+1]
	}
	return fields
}
