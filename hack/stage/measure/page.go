// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"fmt"
	"runtime"
	"strings"
	"time"
)

// page is the table, with what to know about it.
func (b *bench) page() string {
	var out strings.Builder
	fmt.Fprintf(&out, "Machine: %s, %d cores, %s %s %s, %s. The replays ran on a real API server, the benchmarks on one in memory: the best of %d rounds.\n"+
		"The machine did other work as well, so trust requests and ratios more than times. A column is the tree after that patch and those before it.\n\n",
		b.cpu, runtime.NumCPU(), runtime.GOOS, runtime.GOARCH, runtime.Version(), time.Now().UTC().Format(time.DateOnly), rounds)
	b.line(&out, "", func(c *Column) string { return c.Name })
	b.line(&out, "---", func(*Column) string { return "---:" })
	for _, name := range replays {
		b.line(&out, name+": "+b.columns[0].replays[name].Title, func(c *Column) string { return c.replays[name].String() })
	}
	for _, row := range rows {
		b.line(&out, row.title, func(c *Column) string {
			var texts []string
			for _, name := range row.benchmarks {
				texts = append(texts, figure(c.best[name]))
			}
			return strings.Join(texts, " / ")
		})
	}
	return out.String()
}

func (b *bench) line(out *strings.Builder, title string, cell func(*Column) string) {
	fmt.Fprintf(out, "| %s |", title)
	for _, c := range b.columns {
		fmt.Fprintf(out, " %s |", cell(c))
	}
	out.WriteString("\n")
}

// String returns whether the program healed, and at what price.
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

// figure is what one benchmark measured: time, requests or both.
func figure(best map[string]float64) string {
	ns, timed := best["ns/op"]
	requests, counted := best["requests/op"]
	switch {
	case timed && counted:
		return fmt.Sprintf("%s, %.0f req.", duration(ns), requests)
	case timed:
		return duration(ns)
	default:
		return fmt.Sprintf("%.0f", requests)
	}
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
