// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
)

// Start refreshes the mapper by RefreshInterval and WatchAPIs until ctx ends. With
// neither option it only waits. It blocks until then. A read of a version that hangs may go
// on for up to RequestTimeout, and a transport that ignores the context of its requests for
// longer. Start has the shape of controller-runtime's manager.Runnable: mgr.Add(mapper). It
// returns an error if it was called before.
func (m *DynamicRESTMapper) Start(ctx context.Context) error {
	if m.engine.SetStarted() {
		return errors.New("the RESTMapper was started before: Start may be called once")
	}
	m.engine.Run(ctx)
	return nil
}

// NeedLeaderElection returns false: Start runs on every replica, because each has its
// own mapper.
func (m *DynamicRESTMapper) NeedLeaderElection() bool { return false }
