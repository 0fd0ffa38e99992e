// SPDX-License-Identifier: Apache-2.0

package apiutil

import "context"

// Reset has the server read again: every lookup that begins after Reset has returned
// is answered from a read that started after it. Reset sends no request and does not
// wait: the next lookup reads. While the server cannot be read, known kinds are still
// served and the reset stays pending.
func (m *DynamicRESTMapper) Reset() { m.ResetWithContext(context.Background()) }

// ResetWithContext is Reset. It does not use the context, because it waits for nothing.
func (m *DynamicRESTMapper) ResetWithContext(context.Context) { m.reloader.Reset() }

// ResetGroup is Reset for one group, "" being the core group: the next lookup in it
// reads the group live. Hits in other groups still cost no request.
func (m *DynamicRESTMapper) ResetGroup(group string) { m.reloader.ResetGroup(group) }

// Refresh reads the server now: everything, or the given groups live, "" being the
// core group. Every lookup after that knows what it found. Without groups the error is
// nil if the server could be read, even if single versions did not answer: Status has
// those. With groups the error joins all that could not be read of them. Refresh
// returns when ctx ends.
func (m *DynamicRESTMapper) Refresh(ctx context.Context, groups ...string) error {
	if len(groups) == 0 {
		return m.reloader.Refresh(ctx)
	}
	return m.reloader.RefreshGroups(ctx, groups)
}
