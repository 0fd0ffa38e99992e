// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"time"

	"github.com/freshmapper/freshmapper/internal/report"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// result is what a call has found. Which fields are set depends on the part of the server that it has read.
type result struct {
	document  *snapshot.Document     // nil: it could not be read
	preferred string                 // the version of a group that the server prefers; outcome has all versions
	version   snapshot.VersionResult // of a version's own path
}

// fetch sends the requests of a call, publishes what it finds and reports how it went. A call that was canceled proves
// nothing about the server.
func (r *Reloader) fetch(c *call) {
	start := time.Now()
	c.outcome.Seq = c.seq
	switch c.read.Part {
	case snapshot.PartDocument:
		r.fetchDocument(c)
	case snapshot.PartGroup:
		r.fetchList(c)
	case snapshot.PartVersion:
		r.fetchVersion(c)
	}
	if c.ctx.Err() != nil {
		return
	}
	c.before, c.after = r.publish(c.addTo)
	if r.options.Reports != nil {
		read := report.EndedRead{Read: c.read, Duration: time.Since(start), Outcome: c.outcome, After: c.after}
		r.options.Reports.ReadEnded(read)
	}
}

func (r *Reloader) fetchDocument(c *call) {
	began := time.Now()
	document, err := r.client.Document(c.ctx)
	c.outcome.Err = err
	if err != nil {
		return
	}
	c.result.document = document
	if document.Aggregated() {
		r.NoteAllRead(began)
	}
}

func (r *Reloader) fetchList(c *call) {
	versions, preferred, audited, err := r.client.List(c.ctx, c.read.Group)
	if err == nil && len(versions) == 0 { // a 404
		known := c.from.Group(c.read.Group) != nil
		err = r.confirmAbsence(c, known, audited).Err
	}
	c.outcome.Err = err
	c.outcome.Versions = versions
	c.result.preferred = preferred
}

func (r *Reloader) fetchVersion(c *call) {
	known := c.from.Serves(c.read.Group, c.read.Version)
	table, audited, err := r.client.Version(c.ctx, c.read.Group, c.read.Version)
	found := snapshot.VersionResult{Table: table, Err: err}
	if found.NotFound() { // a 404
		found = r.confirmAbsence(c, known, audited)
	}
	c.outcome.Err = found.Err
	c.outcome.Removed = known && found.NotFound()
	c.result.version = found
}

// follow is addTo for a snapshot that may be the one before the result was published: then it returns what was
// published.
func (c *call) follow(s *snapshot.Snapshot) *snapshot.Snapshot {
	if s == c.before {
		return c.after
	}
	return c.addTo(s)
}

// addTo returns the snapshot that follows another one by the result of the call. A document or a list that could not be
// read changes nothing. That a version could not be read is kept beside what it served before.
func (c *call) addTo(s *snapshot.Snapshot) *snapshot.Snapshot {
	switch c.read.Part {
	case snapshot.PartDocument:
		if c.result.document == nil {
			return s
		}
		return s.WithDocument(c.result.document, c.seq)
	case snapshot.PartGroup:
		if c.outcome.Err != nil {
			return s
		}
		return s.WithGroup(c.read.Group, c.outcome.Versions, c.result.preferred, c.seq, c.from)
	default:
		return s.WithVersion(c.read.Group, c.read.Version, c.result.version, c.seq, c.from)
	}
}
