// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// samples are the measured values, by benchmark (without the word Benchmark and
// the number of processors) and unit, and the configuration lines of the file.
// Units are those of benchfmt: what was measured in ns is in sec.
type samples struct {
	values map[string]map[string][]float64
	config map[string]string
	rounds int
	before *samples // of an earlier run; nil if there is none to compare with
}

func readSamples(r io.Reader, name string) (*samples, error) {
	s := &samples{values: map[string]map[string][]float64{}, config: map[string]string{}}
	reader := benchfmt.NewReader(r, name)
	for reader.Scan() {
		switch rec := reader.Result().(type) {
		case *benchfmt.SyntaxError:
			return nil, rec
		case *benchfmt.Result:
			s.add(rec)
		}
	}
	if err := reader.Err(); err != nil {
		return nil, err
	}
	if len(s.values) == 0 {
		return nil, fmt.Errorf("%s: no benchmark results", name)
	}
	return s, nil
}

func (s *samples) add(r *benchfmt.Result) {
	for _, c := range r.Config {
		s.config[c.Key] = string(c.Value)
	}
	name := string(r.Name)
	if _, parts := r.Name.Parts(); len(parts) > 0 {
		if last := string(parts[len(parts)-1]); strings.HasPrefix(last, "-") {
			name = strings.TrimSuffix(name, last)
		}
	}
	units := s.values[name]
	if units == nil {
		units = map[string][]float64{}
		s.values[name] = units
	}
	for _, v := range r.Values {
		units[v.Unit] = append(units[v.Unit], v.Value)
		s.rounds = max(s.rounds, len(units[v.Unit]))
	}
}

// median is NaN for what was not measured.
func (s *samples) median(name, unit string) float64 {
	return median(s.values[name][unit])
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}

const (
	perOp    = "sec/op"
	allocs   = "allocs/op"
	requests = "requests/op"
	docBytes = "doc-B/op"
	heap     = "B/mapper"

	latencies   = "latencies" // multiples of the time that the server takes to answer
	undisturbed = "undisturbed-sec"
	disturbed   = "disturbed-sec"
)

// The names of the benchmarks.

func hit(groups int, lookup, mapper string) string {
	return fmt.Sprintf("Hit/groups=%d/lookup=%s/mapper=%s", groups, lookup, mapper)
}

func hitParallel(groups int, lookup, mapper string) string {
	return fmt.Sprintf("HitParallel/groups=%d/lookup=%s/mapper=%s", groups, lookup, mapper)
}

func of(benchmark string, groups int, mapper string) string {
	return fmt.Sprintf("%s/groups=%d/mapper=%s", benchmark, groups, mapper)
}

var (
	sizes          = []int{10, 100, 500, 2000}
	discoverySizes = []int{10, 100, 500}

	mappers = []string{"ours", "stock", "deferred"}

	// Those with one answer that name all they can, those with one answer that
	// leave out the version, and those with many answers.
	singles     = []string{"RESTMapping+version", "RESTMapping", "KindFor+version", "ResourceFor+version"}
	versionless = []string{"KindFor", "ResourceFor"}
	lists       = []string{"RESTMappings+version", "RESTMappings", "KindsFor+version", "KindsFor", "ResourcesFor+version", "ResourcesFor"}
)

// modes are the forms of the server's documents, and apartGroups is the size of the
// server, in the benchmarks of lookups that must not wait for others.
var modes = []string{"aggregated", "legacy"}

var versionsAsked = []struct{ name, text string }{{"none", "no version"}, {"given", "version given"}}

const apartGroups = 100

const singularizer = "ResourceSingularizer"

func allLookups() []string {
	return slices.Concat(singles, versionless, lists, []string{singularizer})
}
