// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"fmt"
	"html"
	"strings"
	"time"
)

const debugStyle = `body{font:15px/1.45 system-ui,sans-serif;margin:2rem auto;max-width:72rem;padding:0 1rem;color:#1a1a1a;background:#fff}
h1{font-size:1.5rem}h2{font-size:1.15rem;margin-top:2rem}
table{border-collapse:collapse;width:100%}th,td{text-align:left;padding:.25rem .75rem .25rem 0;border-bottom:1px solid #ddd;vertical-align:top}
th[scope=row]{width:13rem}.nowrap{white-space:nowrap}td{overflow-wrap:break-word}.wide{overflow-x:auto}
summary{cursor:pointer}details{margin:.15rem 0}.ok{color:#0a6b2d}.bad{color:#a61b1b}.dim{color:#5a5a5a}
@media (prefers-color-scheme:dark){body{background:#161616;color:#e8e8e8}th,td{border-color:#3a3a3a}.ok{color:#5fd38a}.bad{color:#ff8a80}.dim{color:#a8a8a8}a{color:#8ab4f8}}`

// html returns the HTML page. It does not use html/template, which makes the linker
// keep every method of the whole program. All text from outside is escaped by linef.
func (p debugPage) html(asJSON string) string {
	title := "RESTMapper"
	if p.Cluster != "" {
		title += " of cluster " + p.Cluster
	}
	w := &page{}
	w.head(title)
	w.status(p)
	w.failed(p.Status)
	w.reads(p.Reads)
	w.changes(p.Changes)
	w.groups(p.Groups)
	w.foot(asJSON)
	return w.String()
}

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
	title = html.EscapeString(title)
	w.line(`<title>` + title + `</title><style>` + debugStyle + `</style></head><body><h1>` + title + `</h1>`)
}

func (w *page) foot(asJSON string) {
	w.linef(`<p><a href="%s">This page as JSON</a></p></body></html>`, asJSON)
}

func (w *page) status(p debugPage) {
	s := p.Status
	class, health := healthText(s)
	w.line(`<table>`)
	w.linef(`<tr><th scope="row">Health</th><td class="%s">%s</td></tr>`, class, health)
	w.row("Known", knownText(s))
	w.row("Last read", moment(s.LastAttempt))
	w.row("Last successful read", moment(s.LastSuccess))
	if s.LastError != nil {
		w.row("Last error", fmt.Sprintf("%s (failures in a row: %d)", s.LastError, s.ConsecutiveFailures))
	}
	w.row("Refresh", freshness(p))
	w.line(`</table>`)
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
	var ways []string
	if p.Options.RefreshInterval != "0s" {
		ways = append(ways, "every "+p.Options.RefreshInterval)
	}
	if p.Options.WatchAPIs {
		ways = append(ways, "by watch")
	}
	trouble := ""
	switch {
	case len(ways) > 0 && !p.Options.Started:
		trouble = " (off: Start was not called)"
	case p.Options.WatchAPIs && !p.Status.Watching:
		trouble = " (the watch is not open)"
	}
	return strings.Join(append([]string{"on each miss"}, ways...), ", ") + trouble
}

func (w *page) row(name, value string) {
	w.linef(`<tr><th scope="row">%s</th><td>%s</td></tr>`, name, value)
}

func moment(t time.Time) string {
	if t.IsZero() {
		return "never"
	}
	return t.UTC().Format("2006-01-02 15:04:05 MST")
}

func (w *page) failed(s DynamicRESTMapperStatus) {
	if len(s.FailedGroupVersions) == 0 {
		return
	}
	w.line(`<h2>Versions that can't be read</h2><div class="wide"><table><tr><th>Version</th><th>Why</th></tr>`)
	texts := errorTexts(s.FailedGroupVersions)
	for _, gv := range sortedKeys(texts) {
		w.linef(`<tr><td class="nowrap"><code>%s</code></td><td class="bad">%s</td></tr>`, gv, texts[gv])
	}
	w.line(`</table></div>`)
}

func (w *page) reads(reads []debugRead) {
	w.line(`<h2>Recent reads</h2>`)
	if len(reads) == 0 {
		w.line(`<p class="dim">None since this page was mounted.</p>`)
		return
	}
	w.line(`<div class="wide"><table><tr><th>When</th><th>Part of the server</th><th>Took</th><th>Outcome</th></tr>`)
	for _, r := range reads {
		outcome, class := "read", "ok"
		if r.Error != "" {
			outcome, class = r.Error, "bad"
		}
		w.linef(`<tr><td class="nowrap">%s</td><td>%s</td><td class="nowrap">%s</td><td class="%s">%s</td></tr>`, moment(r.Time), r.Part, r.Duration, class, outcome)
	}
	w.line(`</table></div>`)
}

func (w *page) changes(changes []debugChange) {
	w.line(`<h2>Recent changes</h2>`)
	if len(changes) == 0 {
		w.line(`<p class="dim">None since this page was mounted.</p>`)
		return
	}
	w.line(`<div class="wide"><table><tr><th>When</th><th>Generation</th><th>What</th></tr>`)
	for _, c := range changes {
		w.linef(`<tr><td class="nowrap">%s</td><td>%s</td><td>`, moment(c.Time), fmt.Sprint(c.Generation))
		w.kinds("added", c.Added)
		w.kinds("removed", c.Removed)
		w.kinds("changed", c.Changed)
		w.line(`</td></tr>`)
	}
	w.line(`</table></div>`)
}

// kinds writes a line with the kinds that came, went or changed.
func (w *page) kinds(what string, list []string) {
	if len(list) > 0 {
		w.linef(`<div><span class="dim">%s</span> %s</div>`, what, strings.Join(list, ", "))
	}
}

func (w *page) groups(groups []debugGroup) {
	w.linef(`<h2>Groups (%s)</h2>`, fmt.Sprint(len(groups)))
	for _, g := range groups {
		name := g.Name
		if name == "" {
			name = "core"
		}
		var versions []string
		for _, v := range g.Versions {
			versions = append(versions, v.Name)
		}
		w.linef(`<details><summary><code>%s</code> <span class="dim">%s</span></summary>`, name, strings.Join(versions, ", "))
		w.line(`<table><tr><th>Version</th><th>Kind</th><th>Resource</th><th>Scope</th></tr>`)
		for _, v := range g.Versions {
			w.version(v)
		}
		w.line(`</table></details>`)
	}
}

func (w *page) version(v debugVersion) {
	for _, k := range v.Kinds {
		scope := "cluster"
		if k.Namespaced {
			scope = "namespace"
		}
		w.linef(`<tr><td>%s</td><td>%s</td><td>%s</td><td>%s</td></tr>`, v.Name, k.Kind, k.Resource, scope)
	}
	switch {
	case v.Error != "":
		w.linef(`<tr><td>%s</td><td colspan="3" class="bad">%s</td></tr>`, v.Name, v.Error)
	case len(v.Kinds) == 0:
		w.linef(`<tr><td>%s</td><td colspan="3" class="dim">not read yet</td></tr>`, v.Name)
	}
}
