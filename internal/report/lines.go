// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
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

// mostLines is how many lines are kept of each message.
const mostLines = 50

// add keeps a line. It owns keysAndValues.
func (l *lines) add(message string, keysAndValues []any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.byMessage == nil {
		l.byMessage = map[string][]line{}
	}
	kept := l.byMessage[message]
	if len(kept) == mostLines {
		copy(kept, kept[1:])
		kept = kept[:mostLines-1]
	}
	l.byMessage[message] = append(kept, line{time.Now(), keysAndValues})
}

// all returns the lines of each message by their keys, the latest first. They belong to the caller.
func (l *lines) all() map[string][]map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := map[string][]map[string]any{}
	for message, kept := range l.byMessage {
		for i := len(kept) - 1; i >= 0; i-- {
			fields := map[string]any{"time": kept[i].at}
			for k := 0; k < len(kept[i].keysAndValues); k += 2 {
				fields[fmt.Sprint(kept[i].keysAndValues[k])] = kept[i].keysAndValues[k+1]
			}
			all[message] = append(all[message], fields)
		}
	}
	return all
}
