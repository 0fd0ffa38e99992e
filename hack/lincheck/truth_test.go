// SPDX-License-Identifier: Apache-2.0

package lincheck

// checkTruth checks that the history is linearizable: that every answer was true at one moment
// of its time, of what was served or of what the document said. Changes are made in one instant,
// and lookups change nothing, so each answer can be judged alone. It knows nothing of requests,
// which makes it a second opinion on the proofs.
func checkTruth(v *view) []Violation {
	var list []Violation
	for _, o := range v.Ops {
		for _, group := range o.groups() {
			if o.lookup() && !v.wasTrue(o, group) {
				list = append(list, Violation{RuleTruth, o, "at no moment was this true of " + groupNames[group]})
			}
		}
	}
	return list
}

// wasTrue reports whether what an answer says of a group was true at one moment: of what was
// found, since the last reset, because what is known may be as old as that.
func (v *view) wasTrue(o *Op, group int) bool {
	if o.NoMatch && !(v.Peer && group == groupBatch && v.troubled(o)) && !v.believesAGateway(o) {
		return v.wasAbsent(o, group)
	}
	for _, f := range o.Found {
		var from Stamp
		if !v.troubled(o) && !v.stillListed(o) {
			from = later(v.resets(o, f.Group))
		}
		if f.Group == group && !during(v.Worlds, from, o.Return, f.served) && !during(v.Docs, from, o.Return, f.served) {
			return false
		}
	}
	return true
}

// wasAbsent asks for each version alone: only a document shows all at once. Of versions that
// are left for the next lookup nothing is asked.
func (v *view) wasAbsent(o *Op, group int) bool {
	p := proof{v, o, group, v.within(o)}
	versions := o.versions()
	if p.listIsLeft() {
		versions = p.versionsRead()
	}
	for _, version := range versions {
		absent := func(w World) bool { return !w[group][o.Name].in(version) }
		said := func(w World) bool {
			unlisted := !w.lists(group) && len(o.Versions) == 0
			return absent(w) && (v.Replicas || unlisted || p.byDocument())
		}
		if !during(v.Worlds, o.Call, o.Return, absent) && !during(v.Docs, o.Call, o.Return, said) {
			return false
		}
	}
	return true
}
