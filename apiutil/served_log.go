// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"
)

// logEnd logs that run has returned nil by itself and is not called again. That happens
// if run builds a controller and does not wait for it, and nobody else reports it.
// Without a Logger the line goes to klog, because you must see it.
func (m *DynamicRESTMapper) logEnd(ctx context.Context, gvks []schema.GroupVersionKind) {
	logger := m.options.Logger
	if logger.GetSink() == nil {
		logger = klog.FromContext(ctx)
	}
	m.named(logger).Info("RunWhileServed has ended: run returned nil while its kinds were served, and is not called again. "+
		"It should block until its context ends", "kinds", gvks)
}
