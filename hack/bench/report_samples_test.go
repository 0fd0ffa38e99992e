// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/perf/benchfmt"
)

// samples are the measured values, by "NAME UNIT" (NAME without the word Benchmark
// and the number of processors), and the configuration lines of the file. Units are
// those of benchfmt: what was measured in ns is in sec.
type samples struct {
	values map[string][]float64
	Config map[string]string
	Rounds int
}

func readSamples(file string) (*samples, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &samples{values: map[string][]float64{}, Config: map[string]string{}}
	reader := benchfmt.NewReader(bytes.NewReader(raw), filepath.Base(file))
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
		return nil, fmt.Errorf("%s has no results of benchmarks", file)
	}
	return s, nil
}

func (s *samples) add(r *benchfmt.Result) {
	for _, c := range r.Config {
		s.Config[c.Key] = string(c.Value)
	}
	name := string(r.Name)
	if _, parts := r.Name.Parts(); len(parts) > 0 {
		if last := string(parts[len(parts)-1]); strings.HasPrefix(last, "-") {
			name = strings.TrimSuffix(name, last)
		}
	}
	for _, v := range r.Values {
		what := name + " " + v.Unit
		s.values[what] = append(s.values[what], v.Value)
		s.Rounds = max(s.Rounds, len(s.values[what]))
	}
}

// median returns the median of "NAME UNIT", or of "NAME FACTOR*UNIT" for a multiple
// of it. It is NaN if it was not measured.
func (s *samples) median(what string) float64 {
	at := strings.LastIndexByte(what, ' ') + 1
	if factor, unit, ok := strings.Cut(what[at:], "*"); ok {
		return decimal(factor) * s.median(what[:at]+unit)
	}
	sorted := slices.Sorted(slices.Values(s.values[what]))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// decimal returns the number in a text, or NaN if there is none.
func decimal(s string) float64 {
	v, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return math.NaN()
	}
	return v
}

var (
	sizes     = []string{"10", "100", "500", "2000"} // groups
	modeNames = []string{"aggregated", "legacy"}     // of the server
	mappers   = []string{"ours", "stock", "deferred"}

	// Lookups with one answer that name all they can, those with one answer that
	// leave out the version, and those with many answers.
	singles      = []string{"RESTMapping+version", "RESTMapping", "KindFor+version", "ResourceFor+version"}
	versionless  = []string{"KindFor", "ResourceFor"}
	lists        = []string{"RESTMappings+version", "RESTMappings", "KindsFor+version", "KindsFor", "ResourcesFor+version", "ResourcesFor"}
	singularizer = []string{"ResourceSingularizer"}
	allLookups   = slices.Concat(singles, versionless, lists, singularizer)
)
