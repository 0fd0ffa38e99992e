// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// logEnd says that run has returned nil by itself, as it does when it builds a
// controller and does not wait for it: it is not called again, and nobody else
// would say so. Without a Logger it goes to klog, because it must be seen.
func (m *DynamicRESTMapper) logEnd(ctx context.Context, gvks []schema.GroupVersionKind) {
	logger := m.options.Logger
	if logger.GetSink() == nil {
		logger = klog.FromContext(ctx)
	}
	m.named(logger).Info("RunWhileServed has ended: run returned nil while its kinds were served, and is not called again. "+
		"It should block until its context ends", "kinds", gvks)
}
