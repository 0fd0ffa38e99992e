// SPDX-License-Identifier: Apache-2.0

// Package bench compares this project's mapper with controller-runtime's own
// ("stock") and with client-go's deferred mapper on a cache in memory
// ("deferred"), all on the same API server in memory. hack/bench.sh runs it.
//
// The benchmarks are in three families, which want different run times:
// Benchmark{Floor,Hit,HitParallel} are of nanoseconds to a millisecond,
// BenchmarkPublish, BenchmarkCold, BenchmarkMiss and BenchmarkRefresh of
// microseconds to 100 ms, and BenchmarkOnce… measure something other than the
// time of a loop and are run once (-benchtime=1x) in a process of their own.
package bench
