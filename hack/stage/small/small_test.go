// SPDX-License-Identifier: Apache-2.0

package small

import (
	"context"
	"embed"
	"go/format"
	"maps"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// The series needs these places in upstream's files. If one is missing, the error
// names it.
func TestChangesSayWhatTheyDoNotFind(t *testing.T) {
	stock, err := tree.Upstream(context.Background(), tree.Newest(), nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ file, old, new, want string }{
		"lookup":      {mapperFile, "m.getMapper().KindFor(", "m.asked().KindFor(", `"m.getMapper().KindFor(" in KindFor`},
		"reload":      {mapperFile, "func (m *mapper) addKnownGroupAndReload(", "func (m *mapper) addGroup(", "function addKnownGroupAndReload"},
		"fetch":       {mapperFile, "return nil, &err", "return nil, err", `single "return nil, &err" in fetchGroupVersionResourcesLocked`},
		"find":        {mapperFile, "m.client.GroupsAndMaybeResources()", "m.all()", "GroupsAndMaybeResources"},
		"field":       {mapperFile, "initialDiscoveryDone bool", "discovered bool", "field initialDiscoveryDone in mapper"},
		"struct":      {mapperFile, "type mapper struct", "type lazyMapper struct", "declaration of mapper"},
		"publish":     {mapperFile, "m.mapper = restmapper.", "m.known = restmapper.", `"m.mapper = "`},
		"anchor":      {mapperFile, "getMapper() meta", "known() meta", "declaration of getMapper"},
		"constructor": {mapperFile, "apiGroups:   map", "theGroups:   map", `"apiGroups:" in NewDynamicRESTMapper`},
		"client":      {clientFile, "c.mu.RLock()", "c.mutex.RLock()", `"c.mu.RLock()" in getResource`},
		"maps":        {clientFile, "*resourceMeta\n\n\tmu", "*resource\n\n\tmu", "map to *resourceMeta"},
		"no file":     {clientFile, "", "", "upstream has no pkg/client/client_rest_resources.go"},
		"taken":       {"pkg/client/apiutil/restmapper_live_test.go", "", "package apiutil\n", "give ours another name"},
	} {
		t.Run(name, func(t *testing.T) {
			files := maps.Clone(stock)
			text := string(files[test.file].Data)
			if test.old != "" && !strings.Contains(text, test.old) {
				t.Fatalf("%s has no %q", test.file, test.old)
			}
			edited := strings.ReplaceAll(text, test.old, test.new)
			switch {
			case test.old == "" && test.new == "":
				delete(files, test.file)
			case test.old == "":
				files[test.file] = tree.File{Data: []byte(test.new)}
			default:
				files[test.file] = tree.File{Data: []byte(edited)}
			}
			if _, err := Changes(files); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error: %v", err)
			}
		})
	}
}

// Our code and tests are formatted as gofmt formats them, although the go command
// does not see them.
func TestCodeIsFormatted(t *testing.T) {
	checkFormat(t, code, "code", "package p\n\n")
	checkFormat(t, tests, "tests", "")
}

func checkFormat(t *testing.T, fsys embed.FS, folder, clause string) {
	t.Helper()
	entries, err := fsys.ReadDir(folder)
	if err != nil || len(entries) == 0 {
		t.Fatalf("%d files: %v", len(entries), err)
	}
	for _, entry := range entries {
		data, err := fsys.ReadFile(folder + "/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		text, licensed := strings.CutPrefix(string(data), spdx)
		if text = clause + text; !licensed {
			t.Errorf("%s has no licence", entry.Name())
		}
		if formatted, err := format.Source([]byte(text)); err != nil || string(formatted) != text {
			t.Errorf("%s is not as gofmt has it: %v", entry.Name(), err)
		}
	}
}

// The series is made for every line that the fork supports: the files have had
// the same shape since. A line whose apimachinery has no context variants gets
// Reset alone.
func TestEveryLine(t *testing.T) {
	for _, line := range tree.Lines {
		t.Run(line.Minor, func(t *testing.T) {
			upstream, err := tree.Upstream(context.Background(), line.Newest, nil)
			if err != nil {
				t.Fatal(err)
			}
			changes, err := Changes(upstream)
			if err != nil {
				t.Fatal(err)
			}
			files := changes[len(changes)-1].Files
			text := string(files[mapperFile].Data)
			contexts := line.Minor >= "v0.25"
			if strings.Contains(text, "RESTMappingWithContext(ctx context.Context") != contexts || hasContexts(upstream) != contexts {
				t.Errorf("context variants: want %v", contexts)
			}
			if _, ok := files[clientDir+"apiutil/restmapper_context_test.go"]; ok != contexts {
				t.Errorf("the tests of contexts are there: %v", ok)
			}
			newVersion := string(files[clientDir+"apiutil/restmapper_newversion_test.go"].Data)
			if old := line.Minor == "v0.20"; newVersion == "" || strings.Contains(newVersion, "t.Context()") == old {
				t.Error("T.Context is not there before Go 1.24")
			}
			if strings.Contains(changes[2].Message, "context") != contexts || !strings.Contains(text, "func (m *mapper) Reset()") {
				t.Errorf("the third patch is\n%s", changes[2].Message)
			}
		})
	}
}
