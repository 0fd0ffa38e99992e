// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"fmt"
	"html"
	"strings"
	"time"
)

const debugStyle = `body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem}
table{border-collapse:collapse;width:100%;display:block;overflow-x:auto}th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #8886;vertical-align:top}
:root{color-scheme:light dark}.ok{color:light-dark(#0a6b2d,#5fd38a)}.bad{color:light-dark(#a61b1b,#ff8a80)}.nowrap{white-space:nowrap}.dim{opacity:.7}`

// page is an HTML page. It does not use html/template, which makes the linker keep every
// method of the whole program. All text from outside is escaped by linef.
type page struct{ strings.Builder }

func (w *page) line(text string) { w.WriteString(text + "\n") }

// linef is line with arguments that are escaped.
func (w *page) linef(format string, args ...string) {
	list := make([]any, len(args))
	for i, arg := range args {
		list[i] = html.EscapeString(arg)
	}
	w.line(fmt.Sprintf(format, list...))
}

func (w *page) head(title string) {
	w.line(`<!doctype html><html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">`)
	w.linef(`<title>%s</title><style>`+strings.ReplaceAll(debugStyle, "%", "%%")+`</style></head><body><h1>%s</h1>`, title, title)
}

// table writes a table with these columns, whose names are separated by "|".
func (w *page) table(title, columns string, rows ...[]string) {
	w.linef(`<h2>%s</h2>`, title)
	if len(rows) == 0 {
		w.line(`<p class="dim">None.</p>`)
		return
	}
	w.line(`<table><tr><th>` + strings.ReplaceAll(columns, "|", "</th><th>") + `</th></tr>`)
	for _, row := range rows {
		w.WriteString("<tr>")
		for _, cell := range row {
			w.linef(`<td>%s</td>`, cell)
		}
		w.line("</tr>")
	}
	w.line("</table>")
}

func (w *page) foot(asJSON string) {
	w.linef(`<p><a href="%s">This page as JSON</a></p></body></html>`, asJSON)
}

func healthText(s DynamicRESTMapperStatus) (class, text string) {
	switch {
	case s.LastAttempt.IsZero():
		return "dim", "nothing has been read yet"
	case !s.UnhealthySince.IsZero():
		return "bad", "reads have failed since " + moment(s.UnhealthySince)
	case s.LastError != nil:
		return "bad", "the last read failed"
	default:
		return "ok", "healthy"
	}
}

func knownText(s DynamicRESTMapperStatus) string {
	return fmt.Sprintf("%d groups, %d kinds, generation %d", s.Groups, s.Kinds, s.Generation)
}

// freshness returns a text that lists what keeps the mapper fresh.
func freshness(p debugPage) string {
	text := "on each miss"
	if p.Options.RefreshInterval != "0s" {
		text += ", every " + p.Options.RefreshInterval
	}
	if p.Options.WatchAPIs {
		text += ", by watch"
	}
	switch {
	case text != "on each miss" && !p.Options.Started:
		text += " (off: Start was not called)"
	case p.Options.WatchAPIs && !p.Status.Watching:
		text += " (the watch is not open)"
	}
	return text
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

// The rows of the debug page.

func (p debugPage) failures() (rows [][]string) {
	texts := errorTexts(p.Status.FailedGroupVersions)
	for _, gv := range sortedKeys(texts) {
		if len(rows) == mostRecent {
			return append(rows, []string{"…", fmt.Sprintf("%d more: see JSON", len(texts)-mostRecent)})
		}
		rows = append(rows, []string{gv, texts[gv]})
	}
	return rows
}

func (p debugPage) reads() (rows [][]string) {
	for _, r := range p.Reads {
		rows = append(rows, []string{moment(r.Time), r.Part, r.Group, r.Version, r.Duration, r.Error})
	}
	return rows
}

func (p debugPage) absences() (rows [][]string) {
	for _, a := range p.Absent {
		rows = append(rows, []string{a.Kind + a.Resource, a.Group, strings.Join(a.Versions, ", "), fmt.Sprint(a.Times), moment(a.Last)})
	}
	return rows
}

func (p debugPage) changes() (rows [][]string) {
	for _, c := range p.Changes {
		kinds := func(list []string) string { return strings.Join(list, ", ") }
		rows = append(rows, []string{moment(c.Time), fmt.Sprint(c.Generation), kinds(c.Added), kinds(c.Removed), kinds(c.Changed)})
	}
	return rows
}
