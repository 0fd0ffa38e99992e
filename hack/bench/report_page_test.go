// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bytes"
	_ "embed"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"text/template"

	"golang.org/x/perf/benchunit"
)

//go:embed report.tmpl
var page string

// writePage fills in report.tmpl.
func (s *samples) writePage(file string) error {
	parsed, err := template.New("report.tmpl").Funcs(template.FuncMap{
		"sizes":   func() []string { return sizes },
		"lookups": func() []string { return allLookups },
		"mappers": func() []string { return mappers },
		"words":   strings.Fields,
		"number":  func(groups string) string { return number(decimal(groups)) },
		"given":   func(lookup string) string { return strings.Replace(lookup, "+version", ", version given", 1) },
		"value":   s.value, "cells": s.cells, "gain": s.gain,
	}).Parse(page)
	if err != nil {
		return err
	}
	var filled bytes.Buffer
	if err := parsed.Execute(&filled, s); err != nil {
		return err
	}
	return os.WriteFile(file, filled.Bytes(), 0o644)
}

// value is a median with its unit.
func (s *samples) value(format string, args ...any) string {
	what := fmt.Sprintf(format, args...)
	return inUnit(what, s.median(what))
}

// cells returns the cells of a benchmark: for each mapper, its medians in these
// units, if there are any.
func (s *samples) cells(units, benchmark string, args ...any) string {
	var cells []string
	for _, mapper := range mappers {
		var values []string
		for unit := range strings.FieldsSeq(units) {
			what := fmt.Sprintf(benchmark, args...) + "/mapper=" + mapper + " " + unit
			v := s.median(what)
			if unit == "requests/op" && !math.IsNaN(v) {
				values = append(values, number(math.Round(v*10)/10)+" req.")
			} else if !math.IsNaN(v) {
				values = append(values, inUnit(what, v))
			}
		}
		if values == nil {
			values = []string{inUnit("", math.NaN())}
		}
		cells = append(cells, strings.Join(values, ", "))
	}
	return strings.Join(cells, " | ")
}

// gain is how many times as long a benchmark takes stock.
func (s *samples) gain(benchmark string, args ...any) string {
	name := fmt.Sprintf(benchmark, args...)
	return number(s.median(name+"/mapper=stock sec/op")/s.median(name+"/mapper=ours sec/op")) + " ×"
}

// inUnit returns the text of a value of "NAME UNIT".
func inUnit(what string, v float64) string {
	unit, _, _ := strings.Cut(what[strings.LastIndexAny(what, " *")+1:], "/")
	switch {
	case strings.HasSuffix(unit, "sec"):
		return seconds(v)
	case strings.HasSuffix(unit, "B"):
		return scaled(v, benchunit.Binary, "B")
	default:
		return number(v)
	}
}

func seconds(v float64) string { return scaled(v, benchunit.Decimal, "s") }

// scaled returns the text of v with a prefix before the unit.
func scaled(v float64, class benchunit.Class, unit string) string {
	if math.IsNaN(v) {
		return "–"
	}
	scale := benchunit.CommonScale([]float64{v}, class)
	return number(v/scale.Factor) + " " + scale.Prefix + unit
}

// number returns the text of a number with three significant digits, and commas.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return "–"
	case math.Abs(v) < 1000:
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
		return strconv.FormatFloat(v, 'f', -1, 64)
	}
	digits := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}
