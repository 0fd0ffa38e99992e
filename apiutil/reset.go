// SPDX-License-Identifier: Apache-2.0

package apiutil

import "context"

// Reset makes the mapper read the server again: every lookup that begins after Reset has
// returned is answered from a read that began after the reset. Reset sends no request and
// does not wait: the next lookup reads. While the server cannot be read, known kinds are
// still served and the reset stays pending.
func (m *DynamicRESTMapper) Reset() { m.ResetWithContext(context.Background()) }

// ResetWithContext is Reset. It does not use the context, because it waits for nothing.
func (m *DynamicRESTMapper) ResetWithContext(context.Context) { m.reloader.Reset() }

// ResetGroup is Reset for one group; "" is the core group. The next lookup in the group
// reads it live. Hits in other groups still cost no request.
func (m *DynamicRESTMapper) ResetGroup(group string) { m.reloader.ResetGroup(group) }

// Refresh reads the server now: everything, or the given groups live; "" is the core
// group. Every lookup after Refresh knows what it found. Without groups the error is nil
// if the server could be read, even if single versions did not answer: Status has those.
// With groups the error joins the errors of all failed reads. Refresh returns when it is
// done or when ctx ends.
func (m *DynamicRESTMapper) Refresh(ctx context.Context, groups ...string) error {
	if len(groups) == 0 {
		return m.reloader.Refresh(ctx)
	}
	return m.reloader.RefreshGroups(ctx, groups)
}
