// SPDX-License-Identifier: Apache-2.0

package apiutil

import "context"

// Reset makes every lookup that begins after it returns be answered from a read
// of the server that started after it. It sends no request and does not wait: the
// next lookup reads. As long as the server cannot be read, kinds already known go
// on being served and the reset stays pending.
func (m *DynamicRESTMapper) Reset() { m.ResetWithContext(context.Background()) }

// ResetWithContext is Reset. The context is not used, since nothing is waited for.
func (m *DynamicRESTMapper) ResetWithContext(context.Context) { m.reloader.Reset() }

// ResetGroup is Reset for one group, "" being the core group: the next lookup in
// it reads the group live. Lookups in other groups go on without a request.
func (m *DynamicRESTMapper) ResetGroup(group string) { m.reloader.ResetGroup(group) }

// Refresh reads the server now and reports whether that worked: everything, or the
// given groups live, "" being the core group. Without groups the error is nil if the
// server could be read, whatever single versions did not answer: Status has those.
// With groups it joins what of them could not be read. What is found is known to
// every lookup after that. Refresh ends with ctx.
func (m *DynamicRESTMapper) Refresh(ctx context.Context, groups ...string) error {
	if len(groups) == 0 {
		return m.reloader.Refresh(ctx)
	}
	return m.reloader.RefreshGroups(ctx, groups)
}
