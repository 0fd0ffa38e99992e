// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A register is one kind of one group: as it is served, as the document has it,
// and whether the document lists the group at all.
type register struct {
	live, doc State
	listed    bool
}

// An input is a write of a register, which takes effect in an instant, or a read.
type input struct {
	write func(register) register
	read  func(register) bool
	op    *Op // of a read
}

// checkTruth asks porcupine whether every answer was true at one moment of its
// time. It knows nothing of requests, so it is a second opinion on the proofs.
func checkTruth(v *view) []Violation {
	var list []Violation
	for group := range groupNames {
		for kind := range kindNames {
			writes, reads := v.writes(group, kind), v.reads(group, kind)
			if linearizable(append(writes, reads...)) {
				continue
			}
			for _, read := range reads { // they change nothing, so each can be judged alone
				if !linearizable(append(slices.Clone(writes), read)) {
					op := read.Input.(input).op
					list = append(list, Violation{RuleTruth, op, "at no moment was this true of " + groupNames[group]})
				}
			}
		}
	}
	return list
}

// linearizable reports whether porcupine accepts the history. It gives up after a
// while: a history that is linearizable is checked at once, because reads change
// nothing, so there is nothing to try out.
func linearizable(operations []porcupine.Operation) bool {
	model := porcupine.Model{
		Init: func() any { return register{} },
		Step: func(state, in, _ any) (bool, any) {
			r, i := state.(register), in.(input)
			if i.write != nil {
				return true, i.write(r)
			}
			return i.read(r), r
		},
	}
	return porcupine.CheckOperationsTimeout(model, operations, time.Second) == porcupine.Ok
}

func (v *view) writes(group, kind int) []porcupine.Operation {
	var list []porcupine.Operation
	add := func(at Stamp, write func(register) register) {
		list = append(list, porcupine.Operation{
			ClientId: clients, Input: input{write: write}, Call: int64(at.Seq), Return: int64(at.Seq),
		})
	}
	for i, c := range v.Worlds {
		if i == 0 || v.Worlds[i-1].World[group][kind] != c.World[group][kind] {
			add(c.Stamp, func(r register) register { r.live = c.World[group][kind]; return r })
		}
	}
	for i, c := range v.Docs {
		if i == 0 || v.Docs[i-1].World[group] != c.World[group] {
			add(c.Stamp, func(r register) register {
				r.doc, r.listed = c.World[group][kind], c.World.lists(group)
				return r
			})
		}
	}
	slices.SortFunc(list, func(a, b porcupine.Operation) int { return int(a.Call - b.Call) })
	return list
}

func (v *view) reads(group, kind int) []porcupine.Operation {
	var list []porcupine.Operation
	for _, o := range v.Ops {
		if !o.lookup() || o.Name != kind || !slices.Contains(o.groups(), group) {
			continue
		}
		if o.NoMatch && !(v.Peer && group == groupBatch && v.troubled(o)) {
			list = append(list, v.absentReads(o, group)...)
		}
		for _, f := range o.Found {
			if f.Group == group {
				list = append(list, v.foundRead(o, f))
			}
		}
	}
	return list
}

// absentReads are one read for each version: only a document shows all at once.
// Of versions that are left for the next lookup nothing is asked.
func (v *view) absentReads(o *Op, group int) []porcupine.Operation {
	p := proof{v, o, group, v.within(o)}
	var list []porcupine.Operation
	versions := o.versions()
	if p.listIsLeft() {
		versions = p.versionsRead()
	}
	for _, version := range versions {
		list = append(list, read(o, o.Call, func(r register) bool {
			unlisted := !r.listed && len(o.Versions) == 0
			return !r.live.in(version) || (p.byDocument() || unlisted) && !r.doc.in(version)
		}))
	}
	return list
}

// foundRead is a read whose time begins with the last reset, because what is
// known may be as old as that.
func (v *view) foundRead(o *Op, f Found) porcupine.Operation {
	var from Stamp
	if !v.troubled(o) {
		from = later(v.resets(o, f.Group))
	}
	return read(o, from, func(r register) bool { return f.matches(r.live) || f.matches(r.doc) })
}

func read(o *Op, from Stamp, is func(register) bool) porcupine.Operation {
	return porcupine.Operation{
		ClientId: o.Client, Input: input{read: is, op: o}, Call: int64(from.Seq), Return: int64(o.Return.Seq),
	}
}
