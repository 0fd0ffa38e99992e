// SPDX-License-Identifier: Apache-2.0

package fresh

import "slices"

// state is what an instance is to its kind. A kind in a cache has the state of its current instance, which is the one
// that reads and handlers use. To switch is to replace that instance, mostly because the REST path has changed. Then
// the kind has a second instance for a while, which is filling. doc.go has the table of transitions, and next has it
// as code.
type state int32

const (
	// filling: the instance lists the objects at the path to which the kind switches. Nothing reads from it yet.
	filling state = iota

	// present: the instance is the current one, and nothing has shown that its path is wrong. The first instance of a
	// kind is present before it has listed anything.
	present

	// outdated: the instance is the current one, and it is still read, but a read of the server has shown one of two
	// things: the kind was removed, or it is served although the path of the instance has refused a request. If the
	// kind is served, another instance takes the place of this one, even if that has the same path. If this instance
	// lists its objects before, it is present again.
	outdated

	// absent: the instance is the current one, or about to be, of a kind that cache.Options.ByObject names, and that
	// is not served or may not be listed. It has no objects and sends no requests, and a read returns the reason.
	absent

	// retired: another instance is the current one, the kind has left the cache, or the instance was never needed. It
	// sends no more requests, and ends once no caller waits for its first list.
	retired
)

// next returns the states that may follow a state.
func (s state) next() []state {
	switch s {
	case filling:
		return []state{present, retired}
	case present:
		return []state{outdated, retired}
	case outdated:
		return []state{present, retired}
	case absent:
		return []state{retired}
	default:
		return nil
	}
}

// become makes the one transition of an instance to another state, if there is such a transition.
func (i *instance) become(to state) {
	for {
		from := state(i.state.Load())
		if !slices.Contains(from.next(), to) || i.state.CompareAndSwap(int32(from), int32(to)) {
			return
		}
	}
}

// is reports whether the instance is in a state.
func (i *instance) is(s state) bool { return state(i.state.Load()) == s }
