// SPDX-License-Identifier: Apache-2.0

package report

import (
	"fmt"
	"strings"
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

// mostText is how much of a text is kept. Names may have any length.
const mostText = 512

// add keeps a line. It owns keysAndValues.
func (l *lines) add(message string, keysAndValues []any) {
	for i, value := range keysAndValues {
		switch value := value.(type) {
		case string:
			keysAndValues[i] = clipped(value)
		case []string:
			keysAndValues[i] = clippedList(value)
		}
	}
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

// clipped returns a text of its own that is not too long.
func clipped(text string) string {
	if len(text) <= mostText {
		return text
	}
	return strings.ToValidUTF8(strings.Clone(text[:mostText]), "") + "…"
}

// clippedList returns a list of its own that is not too long, or nil if texts is.
func clippedList(texts []string) (list []string) {
	for _, text := range texts[:min(len(texts), mostNamed+1)] {
		list = append(list, clipped(text))
	}
	return list
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
