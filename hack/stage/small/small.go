// SPDX-License-Identifier: Apache-2.0

// Package small makes the small series: changes to upstream's own mapper and
// client, each of one purpose, that keep their structure. The files are edited
// by their syntax trees, and what is put in is in code and tests.
package small

import (
	"bytes"
	"embed"
	"fmt"
	"maps"
	"path"
	"regexp"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/series"
)

const (
	clientDir  = "pkg/client/"
	mapperFile = clientDir + "apiutil/restmapper.go"
)

// Patch is one purpose.
type Patch struct {
	Name  string
	apply func(tree.Files) error
	tests []string // of ours, in tests, that come with it
}

// Patches lists the series, in order. Each can be the last.
func Patches() []Patch {
	return []Patch{
		{"live", readLive, []string{"apiutil/restmapper_fake", "apiutil/restmapper_live", "apiutil/restmapper_newversion"}},
		{"gone", dropGone, []string{"apiutil/restmapper_gone"}},
		{"reset", resettable, []string{"apiutil/restmapper_reset", "apiutil/restmapper_context"}},
		{"client", followMapper, []string{"client_rest_resources_generation"}},
		{"share", shareReads, []string{"apiutil/restmapper_share", "apiutil/restmapper_sharecontext"}},
	}
}

// Changes applies the series to upstream's files, which it leaves as they are.
func Changes(upstream tree.Files) ([]series.Change, error) {
	files := maps.Clone(upstream)
	var changes []series.Change
	for _, patch := range Patches() {
		message, err := patch.message(hasContexts(files))
		if err == nil {
			err = patch.apply(files)
		}
		if err == nil {
			err = patch.addTests(files)
		}
		if err != nil {
			return nil, fmt.Errorf("patch %q: %w", patch.Name, err)
		}
		changes = append(changes, series.Change{Message: message, Files: maps.Clone(files)})
	}
	return changes, nil
}

//go:embed messages
var messages embed.FS

// message reads the commit message, which for a release without contexts may be
// another one.
func (p Patch) message(contexts bool) (string, error) {
	if !contexts {
		if message, err := messages.ReadFile("messages/" + p.Name + "_withoutcontext.txt"); err == nil {
			return string(message), nil
		}
	}
	message, err := messages.ReadFile("messages/" + p.Name + ".txt")
	return string(message), err
}

//go:embed tests
var tests embed.FS

// withoutTContext finds a Go whose tests have no T.Context.
var withoutTContext = regexp.MustCompile(`\ngo 1\.(1[0-9]|2[0-3])[.\n]`)

// addTests adds the tests that come with the patch. Those about contexts need a
// release that has them.
func (p Patch) addTests(files tree.Files) error {
	for _, name := range p.tests {
		if strings.HasSuffix(name, "context") && !hasContexts(files) {
			continue
		}
		data, err := tests.ReadFile("tests/" + path.Base(name) + "_test.go.txt")
		if err != nil {
			return fmt.Errorf("our test: %w", err)
		}
		name = clientDir + name + "_test.go"
		if _, taken := files[name]; taken {
			return fmt.Errorf("upstream has a %s of its own: give ours another name in hack/stage/small", name)
		}
		if withoutTContext.Match(files["go.mod"].Data) {
			data = bytes.ReplaceAll(data, []byte("t.Context()"), []byte("context.Background()"))
		}
		files[name] = tree.File{Data: data}
	}
	return nil
}
