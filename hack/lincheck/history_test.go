// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A Stamp is a moment. Seq orders all moments of a history; At is the virtual
// time, which stands still while anything runs.
type Stamp struct {
	Seq int
	At  time.Duration
}

func (s Stamp) before(t Stamp) bool { return s.Seq < t.Seq }

// A History is all that happened in one run, each list in the order of its
// beginnings. The lists are not changed any more when the run has ended.
type History struct {
	Seed     uint64
	Legacy   bool
	Calm     bool // without faults
	Peer     bool // a peer alone serves Gadget in batch
	Replicas bool // two replicas answer in turn: one as of now, and one that is behind like the document
	NoIDs    bool // no answer of the server has an Audit-Id
	Document Lag

	Ops      []*Op
	Requests []*Request
	Worlds   []Change // changes of what is served live; the first is the start
	Docs     []Change // changes of what is behind: the document, or all that the older replica says
	Faults   []*Fault

	mu    sync.Mutex // guards all above while the run lasts
	seq   int
	start time.Time
}

// A Lag is how far the document is behind what is served.
type Lag int

// The lags of a document.
const (
	LagNone Lag = iota // but for the moment between the two changes
	LagSome
	LagMuch
)

func (l Lag) String() string { return [...]string{"up to date", "behind", "far behind"}[l] }

// A Change is a world and when it began.
type Change struct {
	Stamp
	World World
}

// A Fault is a time in which a part of the server fails.
type Fault struct {
	From, Until Stamp
	Group       int // of the live endpoints of a group; or the document, or all there is
	Version     int // of its path alone; or everyVersion
	Kind        fakeapi.Fault
}

const (
	theServer    = -2
	theDocument  = -1
	everyVersion = -1
)

// meets reports whether a request meets the fault.
func (f *Fault) meets(r *Request) bool {
	switch f.Group {
	case theServer:
		return true
	case theDocument:
		return !r.live()
	}
	return f.Group == r.Group && (f.Version == everyVersion || f.Version == r.Version)
}

func (f *Fault) String() string {
	where := append([]string{"the server", "the document"}, groupNames[:]...)[f.Group+2]
	if f.Version != everyVersion {
		where += "/" + versionNames[f.Version]
	}
	return where + ", " + f.Kind.String()
}

// concerns reports whether a lookup may need what the fault is about.
func (f *Fault) concerns(o *Op) bool {
	return f.Group < 0 || slices.Contains(o.groups(), f.Group) &&
		(f.Version == everyVersion || slices.Contains(o.versions(), f.Version))
}

// A Request is one that the mapper sent and what came back.
type Request struct {
	Path       string
	Group      int  // -1: of none of ours
	Version    int  // -1: of the group itself
	Doc        bool // for /apis
	Start, End Stamp
	World      World // whose truth the answer tells, if it has not failed
	Code       int
	Fault      *Fault // nil: it was answered truly
	Err        error
}

func (r *Request) failed() bool { return r.Fault != nil || r.Err != nil }

func (r *Request) live() bool { return r.Group >= 0 }

// An OpKind is a method of the mapper.
type OpKind int

// The methods that are called.
const (
	OpMapping OpKind = iota
	OpMappings
	OpKindFor
	OpReset
	OpResetGroup
)

// An Op is one call of the mapper.
type Op struct {
	Client       int
	Kind         OpKind
	Group        string   // may be partial or empty for OpKindFor
	Versions     []string // none: any
	Name         int      // of kindNames
	Call, Return Stamp

	Again *Op // the same call, which was made at once before this one

	Found    []Found
	NoMatch  bool
	Err      error // any other error
	Panicked bool
}

// Found is one mapping, or one kind, that was returned.
type Found struct {
	Group, Version, Kind int
	Namespaced, Scoped   bool // Scoped: the answer says the scope
}

func (f Found) String() string {
	text := fmt.Sprintf("%s/%s %s", groupNames[f.Group], versionNames[f.Version], kindNames[f.Kind])
	if f.Scoped {
		text += " " + scope(f.Namespaced)
	}
	return text
}

func (o *Op) lookup() bool { return o.Kind != OpReset && o.Kind != OpResetGroup }

// byPrefix reports whether a lookup is about all groups whose names begin with its own.
func (o *Op) byPrefix() bool {
	return o.Kind == OpKindFor && (len(o.Versions) == 0 || o.Group == "")
}

// groups lists the groups in which a lookup may find something, in server order.
func (o *Op) groups() []int {
	var list []int
	for g, name := range groupNames {
		if name == o.Group || o.byPrefix() && strings.HasPrefix(name, o.Group) {
			list = append(list, g)
		}
	}
	return list
}

// versions lists the versions asked for: in the order of the question if there
// is one, else all in server order.
func (o *Op) versions() []int {
	var list []int
	for _, name := range o.Versions {
		list = append(list, slices.Index(versionNames[:], name))
	}
	if len(list) == 0 {
		return allVersions
	}
	return list
}

func (o *Op) String() string {
	switch o.Kind {
	case OpReset:
		return "Reset()"
	case OpResetGroup:
		return fmt.Sprintf("ResetGroup(%s)", o.Group)
	case OpKindFor:
		return fmt.Sprintf("KindFor(%q %q %s)", o.Group, strings.Join(o.Versions, ","), resourceName(o.Name))
	case OpMappings:
		return fmt.Sprintf("RESTMappings(%s %s %v)", o.Group, kindNames[o.Name], o.Versions)
	default:
		return fmt.Sprintf("RESTMapping(%s %s %v)", o.Group, kindNames[o.Name], o.Versions)
	}
}

func (o *Op) answer() string {
	switch {
	case !o.lookup():
		return "done"
	case o.NoMatch:
		return "NoMatch"
	case o.Err != nil:
		return fmt.Sprintf("error: %v", o.Err)
	default:
		return fmt.Sprint(o.Found)
	}
}

// note runs change with the stamp of now, under the history's lock.
func (h *History) note(change func(now Stamp)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.seq++
	change(Stamp{Seq: h.seq, At: time.Since(h.start)})
}

func (h *History) mode() string {
	if h.Legacy {
		return "legacy"
	}
	return "aggregated"
}

// String returns what kind of history it is.
func (h *History) String() string {
	trouble := "faults"
	if h.Calm {
		trouble = "no faults"
	}
	if h.Peer {
		trouble += ", a peer"
	}
	if h.Replicas {
		trouble += ", two replicas"
	}
	if h.NoIDs {
		trouble += ", no Audit-Ids"
	}
	return fmt.Sprintf("%s seed %d (document %s, %s)", h.mode(), h.Seed, h.Document, trouble)
}
