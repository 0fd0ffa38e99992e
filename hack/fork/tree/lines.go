// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"regexp"
	"strings"
)

// A Line is a release line of controller-runtime.
type Line struct {
	Minor  string // "v0.25"
	Newest string // the newest release the tests have run on
}

// Lines are the supported release lines, oldest first. A new line is a new row,
// once the tests have passed on it.
var Lines = []Line{
	{Minor: "v0.20", Newest: "v0.20.4"},
	{Minor: "v0.21", Newest: "v0.21.0"},
	{Minor: "v0.22", Newest: "v0.22.5"},
	{Minor: "v0.23", Newest: "v0.23.3"},
	{Minor: "v0.24", Newest: "v0.24.1"},
	{Minor: "v0.25", Newest: "v0.25.2"},
}

var release = regexp.MustCompile(`^(v0\.[0-9]+)\.[0-9]+$`)

// LineOf returns the line of a release, for example "v0.25.2". Any patch release of a
// supported line will do; anything else is an error that names those that are.
func LineOf(version string) (Line, error) {
	for _, line := range Lines {
		if found := release.FindStringSubmatch(version); found != nil && found[1] == line.Minor {
			return line, nil
		}
	}
	return Line{}, fmt.Errorf("controller-runtime %s is not supported: use a release of %s", version, Supported())
}

// Supported names the supported lines for a reader: "v0.24 (newest tested
// v0.24.1), v0.25 (newest tested v0.25.2)".
func Supported() string {
	names := make([]string, len(Lines))
	for i, line := range Lines {
		names[i] = fmt.Sprintf("%s (newest tested %s)", line.Minor, line.Newest)
	}
	return strings.Join(names, ", ")
}

// Newest is the newest tested release of the newest supported line.
func Newest() string { return Lines[len(Lines)-1].Newest }
