// SPDX-License-Identifier: Apache-2.0

package main

import (
	"math"
	"strconv"
	"strings"
)

// number has three digits that count, and commas.
func number(v float64) string {
	if math.IsNaN(v) {
		return "–"
	}
	if v != 0 && math.Abs(v) < 1000 {
		digits := int(math.Floor(math.Log10(math.Abs(v))))
		v, _ = strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
		return trimZeros(strconv.FormatFloat(v, 'f', max(0, 2-digits), 64))
	}
	return withCommas(strconv.FormatFloat(math.Round(v), 'f', 0, 64))
}

func trimZeros(s string) string {
	if !strings.Contains(s, ".") {
		return s
	}
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

func withCommas(digits string) string {
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

func seconds(v float64) string {
	return scaled(v, []scale{{1, "s"}, {1e-3, "ms"}, {1e-6, "µs"}, {1e-9, "ns"}})
}

func bytesOf(v float64) string {
	return scaled(v, []scale{{1 << 20, "MiB"}, {1 << 10, "KiB"}, {1, "B"}})
}

type scale struct {
	factor float64
	unit   string
}

// scaled writes v in the first scale, the largest being first, in which it is at least 1.
func scaled(v float64, scales []scale) string {
	if math.IsNaN(v) {
		return "–"
	}
	for _, s := range scales {
		// Rounding to three digits may lift a value to the next scale.
		if v >= s.factor*0.9995 {
			return number(v/s.factor) + " " + s.unit
		}
	}
	smallest := scales[len(scales)-1]
	return number(v/smallest.factor) + " " + smallest.unit
}
