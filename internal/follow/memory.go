// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// memory has a record of each kind.
type memory = Map[schema.GroupVersionKind, record]

// record is with which mapping requests for a kind were answered. The zero value is that of an unused kind.
type record struct {
	state      recordState
	mapping    *meta.RESTMapping // with which a request was answered last; nil if the kind is unused
	generation uint64            // of the lookup that did not find a missing kind
}

// recordState is what became of a kind since a request for it was answered.
//
//	state       becomes
//	unused      answered   when a request was answered
//	answered    missing    when a lookup fails, with NoMatch or with another error
//	missing     answered   when a lookup or a live read finds the kind again
type recordState int

const (
	// unused: no request for the kind was answered so far.
	unused recordState = iota
	// answered: a request was answered, and each lookup since has found the kind.
	answered
	// missing: the last lookup failed. Requests are sent with the mapping of before, so that the server
	// answers them, and not the mapper.
	missing
)

// isNews reports whether it says something new that a request with a mapping was answered. Of a missing kind it does
// not, because requests go on with the old mapping.
func (r record) isNews(used *meta.RESTMapping) bool {
	switch r.state {
	case unused:
		return true
	case answered:
		return Differ(r.mapping, used)
	default:
		return false
	}
}

// contradictedBy reports whether a reply contradicts the mapping that was used. That something was not found means the
// object, unless the kind is missing: then nothing speaks for the path.
//
//	reply              of a kind that was found    of a missing kind
//	ReplyFits          no                          no
//	ReplyNotFound      no                          yes
//	ReplyContradicts   yes                         yes
func (r record) contradictedBy(reply Reply) bool {
	switch reply {
	case ReplyContradicts:
		return true
	case ReplyNotFound:
		return r.state == missing
	default:
		return false
	}
}
