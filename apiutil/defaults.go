// SPDX-License-Identifier: Apache-2.0

package apiutil

import "github.com/go-logr/logr"

// defaultMetrics returns the metrics for an option Metrics that is nil. It has its own
// file because a controller-runtime tree with this mapper inside replaces this file, and
// uses controller-runtime's registry.
func defaultMetrics() DynamicRESTMapperMetrics { return nil }

// defaultLogger returns the logger for an option Logger that is not set. In such a tree it
// is the program's.
func defaultLogger() logr.Logger { return logr.Logger{} }
