// SPDX-License-Identifier: Apache-2.0

package apiutil

// defaultMetrics is what Metrics is when it is nil. It stands in a file of its
// own because a controller-runtime tree with this mapper inside has another one,
// which registers with controller-runtime's registry.
func defaultMetrics() DynamicRESTMapperMetrics { return nil }
