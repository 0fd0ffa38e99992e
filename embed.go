// SPDX-License-Identifier: Apache-2.0

// Package freshmapper carries the sources of its own mapper, so that hack/fork,
// hack/release and hack/stage can write them into a controller-runtime tree wherever they
// run, also from the module cache. Programs that want the mapper import
// github.com/freshmapper/freshmapper/apiutil.
package freshmapper

import "embed"

// Source holds apiutil and internal as they stand in this module, tests included, and
// the files of the module fresh that have a place in a tree, in one text. Paths are
// slash-separated and relative to the module's root.
//
//go:embed apiutil internal fresh.txt
var Source embed.FS

// Matrix is a table in Markdown: how upstream's tests fare on stock and fork of every
// line.
//
//go:embed hack/fork/MATRIX.md
var Matrix string
