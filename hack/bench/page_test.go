// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

var raw = flag.String("raw", "", "the raw.txt that hack/bench.sh has written")

// samples are the measured values, by "NAME UNIT": NAME is without the word Benchmark and the number of processors.
type samples map[string][]float64

var processors = regexp.MustCompile(`-\d+$`)

func read(text string) samples {
	s := samples{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := processors.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
		for i := 2; i+1 < len(fields); i += 2 {
			v, _ := strconv.ParseFloat(fields[i], 64) // the testing package has written it
			s[name+" "+fields[i+1]] = append(s[name+" "+fields[i+1]], v)
		}
	}
	return s
}

// median is NaN for what was not measured.
func (s samples) median(what string) float64 {
	sorted := slices.Sorted(slices.Values(s[what]))
	n := len(sorted)
	if n == 0 {
		return math.NaN()
	}
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// targets are the lines of testdata/targets.txt, which explains them, with names in place of what they stand for.
func targets(text string) (fields [][]string) {
	var names []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if name, is, ok := strings.Cut(line, " = "); ok {
			names = append(names, name, is)
		} else if strings.HasPrefix(line, "<=") || strings.HasPrefix(line, ">=") {
			fields = append(fields, strings.Split(strings.NewReplacer(names...).Replace(line)+strings.Repeat(" | ", 3), " | "))
		}
	}
	return fields
}

// size is left out of a name for the mean of all sizes; varies is what tells apart those that match a pattern.
var (
	size   = regexp.MustCompile(`groups=[^/ ]*`)
	varies = regexp.MustCompile(`(groups|lookup|mode|of|mapper)=[^/ ]*`)
)

// row is a row of the page: what was measured, the worst of all, and whether that is good enough.
func (s samples) row(target []string) string {
	op, figure, pattern, divisor := target[0][:2], target[1], target[2], strings.Fields(target[3])
	logs := map[string][]float64{} // for the geometric mean
	for name := range s {
		if !regexp.MustCompile("^" + pattern + "$").MatchString(name) {
			continue
		}
		v, key := s.median(name), name
		if len(divisor) > 0 {
			v /= s.median(regexp.MustCompile(divisor[0]).ReplaceAllLiteralString(name, divisor[1]))
		}
		if target[4] == "mean" {
			key = size.ReplaceAllString(name, "")
		}
		logs[key] = append(logs[key], math.Log(v))
	}
	worst, where := math.NaN(), ""
	for _, key := range slices.Sorted(maps.Keys(logs)) {
		sum := 0.0
		for _, v := range logs[key] {
			sum += v
		}
		v := math.Exp(sum / float64(len(logs[key])))
		if where == "" || math.IsNaN(v) || op == ">=" && v < worst || op == "<=" && v > worst {
			worst, where = v, key
		}
	}
	unit, digits := pattern[strings.LastIndex(pattern, " ")+1:], 5
	if len(divisor) > 0 {
		unit, digits = "×", 3
	}
	bound, _ := strconv.ParseFloat(target[0][3:], 64)
	mark, said := "✓", fmt.Sprintf("%.*g %s", digits, worst, unit)
	switch {
	case math.IsNaN(worst):
		mark, said = "–", "not measured"
	case op == ">=" && worst < bound, op == "<=" && worst > bound:
		mark = "✗"
	}
	if len(logs) > 1 {
		said += " (" + strings.Join(varies.FindAllString(where, -1), " ") + ")"
	}
	return fmt.Sprintf("| %s | %s | %s %s | %s |\n", figure, said, target[0], unit, mark)
}

// Every line of the targets can be read.
func TestTargets(t *testing.T) {
	text, err := os.ReadFile("testdata/targets.txt")
	must(t, err)
	for _, target := range targets(string(text)) {
		if _, err := strconv.ParseFloat(target[0][3:], 64); err != nil || target[2] == "" || len(strings.Fields(target[3]))%2 != 0 {
			t.Errorf("testdata/targets.txt: %q is not bound, figure, pattern and pair: %v", target, err)
		}
	}
}

// TestPage writes the page and the plot beside raw.txt. What the page says before its table stays.
func TestPage(t *testing.T) {
	if *raw == "" {
		t.Skip("hack/bench.sh runs it with -raw")
	}
	text, err := os.ReadFile(*raw)
	must(t, err)
	wanted, err := os.ReadFile("testdata/targets.txt")
	must(t, err)
	page, err := os.ReadFile("results/README.md")
	must(t, err)
	page = page[:bytes.Index(page, []byte("\n| "))+1]
	facts, _, _ := strings.Cut(string(text), "\n\n") // what bench.sh has written before the samples
	machine := "Machine: " + strings.Join(strings.Split(strings.TrimSpace(facts), "\n"), "; ") + "."
	s, filled := read(string(text)), regexp.MustCompile("(?m)^Machine: .*").ReplaceAllLiteralString(string(page), machine)+
		"| figure | measured | target |  |\n| --- | ---: | ---: | ---: |\n"
	for _, target := range targets(string(wanted)) {
		filled += s.row(target)
	}
	fmt.Print(filled)
	must(t, os.WriteFile(filepath.Join(filepath.Dir(*raw), "README.md"), []byte(filled), 0o644))
	plot, err := os.ReadFile("results/hit.svg")
	must(t, err)
	must(t, os.WriteFile(filepath.Join(filepath.Dir(*raw), "hit.svg"), s.plot(plot), 0o644))
}

// plot is the picture of the time of a hit by the size of the server, on logarithmic scales, in colours that people
// with any kind of colour vision can tell apart (Okabe and Ito). The axes of the last one stay, and its lines are replaced.
func (s samples) plot(last []byte) []byte {
	for _, line := range []string{"RESTMapping/mapper=ours", "RESTMapping/mapper=stock", "RESTMapping/mapper=deferred", "floor/mapper=floor"} {
		points := ""
		for _, groups := range hitSizes {
			ns := s.median(fmt.Sprintf("Hit/groups=%d/lookup=%s ns/op", groups, line))
			points += fmt.Sprintf("%.1f,%.1f ", 80+520*math.Log(float64(groups)/10)/math.Log(200), 430-380*math.Log10(ns/10)/6)
		}
		_, name, _ := strings.Cut(line, "=")
		last = regexp.MustCompile(`(id="`+name+`" points=")[^"]*`).ReplaceAll(last, []byte("${1}"+points))
	}
	return last
}
