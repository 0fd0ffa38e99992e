// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// figures are what was measured, by column.
type figures struct {
	samples map[string]samples
	replays map[string]map[string]outcome // by column and replay
}

func newFigures() *figures {
	return &figures{samples: map[string]samples{}, replays: map[string]map[string]outcome{}}
}

func (f *figures) of(column string) samples {
	if f.samples[column] == nil {
		f.samples[column] = samples{}
	}
	return f.samples[column]
}

func (f *figures) replay(column string, o outcome) {
	if f.replays[column] == nil {
		f.replays[column] = map[string]outcome{}
	}
	f.replays[column][o.Replay] = o
}

func (f *figures) missing(column string) []string {
	return slices.DeleteFunc(slices.Clone(replayNames), func(name string) bool {
		_, ok := f.replays[column][name]
		return ok
	})
}

// page is the table, with what to know about it.
func (f *figures) page(columns []Column, machine string) string {
	var out strings.Builder
	fmt.Fprintf(&out, "Machine: %s. Replays on a real API server; requests and times on one in memory, the best of %d interleaved rounds.\n"+
		"The machine did other work as well, so times move; ratios less. A column is the tree after that patch and those before it.\n\n", machine, rounds)
	line(&out, "", names(columns))
	line(&out, "---", slices.Repeat([]string{"---:"}, len(columns)))
	for _, name := range replayNames {
		title := name + ": " + f.replays[columns[len(columns)-1].Name][name].Title
		f.line(&out, columns, title, func(column string) string { return f.replays[column][name].String() })
	}
	for _, row := range requestRows {
		f.line(&out, columns, "requests, "+row.title+": aggregated / not", func(column string) string {
			s := f.samples[column]
			return fmt.Sprintf("%.0f / %.0f", s.best(requestBenchmark("aggregated", row.name), "requests/op"),
				s.best(requestBenchmark("legacy", row.name), "requests/op"))
		})
	}
	for _, row := range rows {
		f.line(&out, columns, row.title, func(column string) string {
			s := f.samples[column]
			text := duration(s.best(row.benchmark, row.unit))
			if row.requests {
				text += fmt.Sprintf(", %.0f req.", s.best(row.benchmark, "requests/op"))
			}
			return text
		})
	}
	return out.String()
}

func (f *figures) line(out *strings.Builder, columns []Column, title string, cell func(column string) string) {
	cells := make([]string, len(columns))
	for i, column := range columns {
		cells[i] = cell(column.Name)
	}
	line(out, title, cells)
}

func line(out *strings.Builder, title string, cells []string) {
	fmt.Fprintf(out, "| %s | %s |\n", title, strings.Join(cells, " | "))
}

func names(columns []Column) []string {
	texts := make([]string, len(columns))
	for i, column := range columns {
		texts[i] = column.Name
	}
	return texts
}

// String returns whether the program came right, and at what price.
func (o outcome) String() string {
	text := "never"
	if o.Healed {
		text = duration(o.Millis * float64(time.Millisecond))
	}
	text += fmt.Sprintf(", %d req.", o.Requests)
	if o.Healed && o.Tries > 1 {
		text += fmt.Sprintf(", %d tries", o.Tries)
	}
	return text
}

// duration is a number of nanoseconds, for a reader.
func duration(ns float64) string {
	for _, unit := range []struct {
		name string
		of   float64
	}{{"s", 1e9}, {"ms", 1e6}, {"µs", 1e3}} {
		if ns >= unit.of {
			return fmt.Sprintf("%.3g %s", ns/unit.of, unit.name)
		}
	}
	return fmt.Sprintf("%.3g ns", ns)
}
