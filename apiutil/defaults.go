// SPDX-License-Identifier: Apache-2.0

package apiutil

// defaultMetrics returns the metrics for an option Metrics that is nil. It has its own
// file because a controller-runtime tree with this mapper inside replaces this file, and
// uses controller-runtime's registry.
func defaultMetrics() DynamicRESTMapperMetrics { return nil }
