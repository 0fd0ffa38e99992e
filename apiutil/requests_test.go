// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var rewriteScripts = flag.Bool("rewrite", false, "write what the scripts in testdata/requests print into them")

// TestRequestScripts plays the scripts in testdata/requests: what each lookup
// answers, and every request that it sends. A script's name begins with the way in
// which its server speaks; with both versions of the aggregated document all is the same.
// The README beside them lists the commands.
func TestRequestScripts(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	paths, err := filepath.Glob(filepath.Join("testdata", "requests", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		for mode, forms := range allModes {
			if strings.HasPrefix(name, "legacy") != (mode == "legacy") {
				continue
			}
			t.Run(name+" as "+mode, func(t *testing.T) {
				want, err := os.ReadFile(path)
				if err != nil {
					t.Fatal(err)
				}
				got := strings.ReplaceAll(playScript(t, string(want), forms), "  v2beta1+", "  v2+")
				if *rewriteScripts {
					if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
						t.Fatal(err)
					}
				} else if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("%s (-want +got; if it is meant: go test -run TestRequestScripts -rewrite):\n%s", path, diff)
				}
			})
		}
	}
}

// playScript returns the script with what it prints now in the place of what it
// printed before.
func playScript(t *testing.T, script string, forms fakeapi.Forms) string {
	stage := &scriptStage{forms: forms}
	var result, printed []string
	printing := false // between ---- and the empty line
	for _, line := range strings.Split(script, "\n") {
		switch {
		case printing && line != "":
			continue
		case line == "----":
			line, printing = strings.Join(append([]string{line}, printed...), "\n"), true
			printed = nil
		case line == "" && len(printed) > 0:
			t.Fatalf("these are printed where there is no ----: %q", printed)
		case line == "" || line[0] == '#':
			printing = false
		default:
			output, err := stage.command(strings.Fields(line))
			if err != nil {
				t.Fatalf("%q: %v", line, err)
			}
			printed = append(printed, output...)
		}
		result = append(result, line)
	}
	return strings.Join(result, "\n")
}

// A scriptStage is a server, a mapper of it, and what a script has made of them.
type scriptStage struct {
	forms  fakeapi.Forms
	groups []fakeapi.Group
	server *fakeapi.Server
	client *http.Client
	mapper *apiutil.DynamicRESTMapper
}

// command returns what it prints, a line each.
func (s *scriptStage) command(words []string) ([]string, error) {
	name, args := words[0], words[1:]
	switch {
	case name == "new" && len(args) == 0:
		return nil, s.newServer()
	case name == "reset" && len(args) == 0:
		s.mapper.Reset()
		return nil, nil
	case name == "lookup" && len(args) >= 3:
		answer, err := s.lookup(args[0], args[1], args[2], args[3:])
		return s.withRequests(answer), err
	case name == "singular" && len(args) == 1:
		answer, err := s.lookup(name, "any", args[0], nil)
		return s.withRequests(answer), err
	default:
		return nil, s.change(name, args)
	}
}

func (s *scriptStage) newServer() error {
	s.groups = []fakeapi.Group{
		fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")),
		fakeGroup("apps", fakeVersion("v1", "Deployment")),
	}
	s.server = fakeapi.New(s.groups...)
	s.server.SetForms(s.forms)
	s.client = s.server.Client()
	var err error
	s.mapper, err = apiutil.NewDynamicRESTMapperWithOptions(s.server.Config(), s.client, apiutil.DynamicRESTMapperOptions{})
	return err
}

// withRequests appends the requests. Those of several groups are sent side by side,
// and are listed by their paths.
func (s *scriptStage) withRequests(answer string) []string {
	var lines, live []string // live are requests one after the other, none of them of the document
	groups := map[string]bool{}
	flush := func() {
		if len(groups) > 1 {
			slices.Sort(live)
		}
		lines, live = append(lines, live...), nil
		clear(groups)
	}
	for _, r := range s.server.TakeRequests() {
		line := "  " + r.String()
		if parts := strings.Split(r.Path, "/"); len(parts) > 2 { // "", "api", VERSION; or "", "apis", GROUP, VERSION
			live = append(live, line)
			groups[strings.Join(parts[:3], "/")] = true
			continue
		}
		flush()
		lines = append(lines, line)
	}
	flush()
	return append([]string{answer}, lines...)
}

// lookup looks something up in a group, the core group or any group.
func (s *scriptStage) lookup(what, group, name string, versions []string) (string, error) {
	answer, err := lookup(context.Background(), s.mapper, what, groupOf(group), name, versions...)
	return answered(answer, err), nil
}

func groupOf(name string) string {
	if name == "core" || name == "any" {
		return ""
	}
	return name
}

// change changes what the server serves, or how.
func (s *scriptStage) change(name string, args []string) error {
	switch {
	case name == "serve" && len(args) == 3:
		s.edit(args[0], func(g *fakeapi.Group) {
			v := fakeVersion(args[1], strings.Split(args[2], ",")...)
			if i := findVersion(g, v.Name); i >= 0 {
				g.Versions[i] = v
			} else {
				g.Versions = append(g.Versions, v)
			}
		})
	case name == "remove" && len(args) == 1:
		s.edit(args[0], func(g *fakeapi.Group) { g.Versions = nil })
	case name == "remove" && len(args) == 2:
		s.edit(args[0], func(g *fakeapi.Group) {
			g.Versions = slices.DeleteFunc(g.Versions, func(v fakeapi.Version) bool { return v.Name == args[1] })
		})
	case name == "prefer" && len(args) == 2:
		s.edit(args[0], func(g *fakeapi.Group) {
			i := findVersion(g, args[1])
			g.Versions = slices.Insert(slices.Delete(slices.Clone(g.Versions), i, i+1), 0, g.Versions[i])
		})
	case (name == "stale" || name == "recover") && len(args) == 2:
		s.edit(args[0], func(g *fakeapi.Group) { g.Versions[findVersion(g, args[1])].Stale = name == "stale" })
	case name == "fail" && len(args) == 1:
		s.server.SetFault(fakeapi.At(args[0]), fakeapi.Status(http.StatusServiceUnavailable, 0))
	case name == "lag" && len(args) == 1:
		before := fakeapi.New(slices.Clone(s.groups)...)
		before.SetForms(s.forms)
		s.server.SetFault(fakeapi.At(args[0]), fakeapi.Func("behind", before.Client().Transport.RoundTrip))
	case name == "heal" && len(args) == 0:
		s.server.ClearFaults()
	default:
		return fmt.Errorf("no such command with %d arguments", len(args))
	}
	return nil
}

// edit changes one group, adds it if there is none, and removes it if it has no versions left.
func (s *scriptStage) edit(name string, edit func(*fakeapi.Group)) {
	if name == "core" {
		name = ""
	}
	s.groups = slices.Clone(s.groups)
	i := slices.IndexFunc(s.groups, func(g fakeapi.Group) bool { return g.Name == name })
	if i < 0 {
		i = len(s.groups)
		s.groups = append(s.groups, fakeapi.Group{Name: name})
	}
	group := s.groups[i]
	group.Versions = slices.Clone(group.Versions)
	edit(&group)
	if s.groups[i] = group; len(group.Versions) == 0 {
		s.groups = slices.Delete(s.groups, i, i+1)
	}
	s.server.SetGroups(slices.Clone(s.groups)...)
}

func findVersion(g *fakeapi.Group, name string) int {
	return slices.IndexFunc(g.Versions, func(v fakeapi.Version) bool { return v.Name == name })
}
