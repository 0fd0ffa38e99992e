// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/discovery"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

var rewriteScripts = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestStories plays the scripts in testdata/stories and testdata/requests: each command must print what the script has
// after its arrow, and the requests below it if these are shown. The READMEs beside them list the commands.
func TestStories(t *testing.T) {
	quietly(t)
	paths, err := filepath.Glob(filepath.Join("testdata", "*", "*.txt"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no stories: %v", err)
	}
	for _, path := range paths {
		script, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		stories, line := strings.Split(strings.TrimSpace(string(script)), "\n\n"), 1
		for i, story := range stories {
			begin := line
			line += strings.Count(story, "\n") + 2
			title, _, _ := strings.Cut(strings.TrimPrefix(story, "# "), "\n")
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt")+"/"+title, func(t *testing.T) {
				eachMode(t, storyModes(path, story), func(t *testing.T, forms fakeapi.Forms) {
					for turn := range storyTurns(story) {
						bubble.Run(t, func(t *testing.T) {
							s := &storyStage{t: t, forms: forms, traced: isTraced(path), alone: storyTurns(story) == 1}
							got := s.play(story, turn)
							if *rewriteScripts {
								stories[i] = got
							} else if got != story {
								t.Errorf("in turn %d, these steps print something else:\n%s", turn+1, storyDifference(path, begin, story, got))
							}
						})
					}
				})
			})
		}
		if *rewriteScripts {
			if err := os.WriteFile(path, []byte(strings.Join(stories, "\n\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A storyStep is a command with what it prints, a line each: its answer, and the requests below it.
type storyStep struct {
	line    int // in the script
	command string
	prints  []string
}

func storySteps(line int, story string) (steps []storyStep) {
	for text := range strings.SplitSeq(story, "\n") {
		if request, ok := strings.CutPrefix(text, "  "); ok {
			last := &steps[len(steps)-1]
			last.prints = append(last.prints, request)
		} else {
			command, output, _ := strings.Cut(text, " → ")
			steps = append(steps, storyStep{line, strings.TrimSpace(command), strings.Split(output, "; ")})
		}
		line++
	}
	return steps
}

// storyDifference shows the steps that print something else than the script has, those that come first, in two columns.
func storyDifference(path string, line int, want, got string) string {
	var text strings.Builder
	differ, steps := 0, storySteps(line, got)
	for i, step := range storySteps(line, want) {
		if slices.Equal(step.prints, steps[i].prints) {
			continue
		}
		if differ++; differ > 5 {
			continue
		}
		fmt.Fprintf(&text, "%s:%d: %s\n", path, step.line, step.command)
		columns := tabwriter.NewWriter(&text, 0, 0, 1, ' ', 0)
		fmt.Fprintln(columns, "    want\t| got")
		for _, row := range inColumns(step.prints, steps[i].prints) {
			fmt.Fprintf(columns, "    %s\t%s %s\n", row[0], map[bool]string{true: "=", false: "≠"}[row[0] == row[1]], row[1])
		}
		_ = columns.Flush()
	}
	if differ > 5 {
		fmt.Fprintf(&text, "and %d more steps\n", differ-5)
	}
	return text.String()
}

// inColumns puts the same lines beside each other.
func inColumns(want, got []string) (rows [][2]string) {
	for len(want) > 0 || len(got) > 0 {
		missing := len(want) > 0 && !slices.Contains(got, want[0])
		beyond := len(got) > 0 && !slices.Contains(want, got[0])
		var row [2]string
		if len(want) > 0 && (missing || !beyond) {
			row[0], want = want[0], want[1:]
		}
		if len(got) > 0 && (beyond || !missing) {
			row[1], got = got[0], got[1:]
		}
		rows = append(rows, row)
	}
	return rows
}

// isTraced reports whether a script has all requests, below the commands that send them.
func isTraced(path string) bool { return filepath.Base(filepath.Dir(path)) == "requests" }

// storyModes returns the sorts of servers that a story is for: the name of the script, or
// "new", may name one. Requests are the same in both versions of the aggregated document.
func storyModes(path, story string) map[string]fakeapi.Forms {
	modes := maps.Clone(bothModes)
	if isTraced(path) {
		modes["v2beta1"] = fakeapi.V2Beta1Only()
	}
	for only := range bothModes {
		if strings.HasPrefix(filepath.Base(path), only) || strings.Contains(story, "new "+only) {
			maps.DeleteFunc(modes, func(mode string, _ fakeapi.Forms) bool { return (mode == "legacy") != (only == "legacy") })
		}
	}
	return modes
}

// storyTurns returns how often a story is played: once for each "case", or for each alternative of "either".
func storyTurns(story string) int {
	turns := 1
	for line := range strings.Lines(story) {
		if strings.HasPrefix(line, "either ") {
			turns = max(turns, strings.Count(line, " | ")+1)
		}
	}
	return max(turns, len(storyCases(story)))
}

// storyCases returns the columns of each "case" of a story: "do $1" does what the first one says.
func storyCases(story string) (cases [][]string) {
	for line := range strings.Lines(story) {
		if columns, ok := strings.CutPrefix(strings.TrimSpace(line), "case "); ok {
			cases = append(cases, strings.Split(columns, " | "))
		}
	}
	return cases
}

// A storyStage is a server, a mapper of it, what a story has made of them, and all that may go on in the background.
type storyStage struct {
	t           *testing.T
	forms       fakeapi.Forms
	server      *fakeapi.Server
	replica     *fakeapi.Server // another one behind the same address, or nil
	mapper      *apiutil.DynamicRESTMapper
	traced      bool // all requests are shown
	alone       bool // the story is played once, so a lookup asks the server, and takes its time, each time the same
	log         *testLog
	generation  uint64
	stop, ready func()
	subscribers map[string]*subscriber
	begun       map[string]*begunCalls
	controllers map[string]*controller
	metrics     *recordedMetrics
	watched     *watchServer
	began       time.Time
	sent        []string // the requests since they were last shown or forgotten
	err         error    // of the last lookup
	cache       discovery.CachedDiscoveryInterface
	deferred    *restmapper.DeferredDiscoveryRESTMapper // over the cache
	fleet       *fleetStage
	options     apiutil.DynamicRESTMapperOptions // of the mapper, and of fleets
}

// play returns the story with what its commands print now.
func (s *storyStage) play(story string, turn int) string {
	var played []string
	for line := range strings.Lines(story) {
		command, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " → ")
		output, sent := "", []string(nil)
		switch word, rest, _ := strings.Cut(strings.TrimRight(command, " "), " "); {
		case strings.HasPrefix(command, "  "): // a request
			continue
		case strings.HasPrefix(word, "#"), word == "case":
		case word == "either":
			all := strings.Split(rest, " | ")
			s.do(strings.Fields(all[turn%len(all)]))
		case word == "do":
			column, err := strconv.Atoi(strings.TrimPrefix(rest, "$"))
			if err != nil {
				s.t.Fatalf("%q: %v", command, err)
			}
			s.do(strings.Fields(storyCases(story)[turn][column-1]))
		default:
			output, sent = s.do(strings.Fields(command))
		}
		if command = strings.TrimRight(command, " "); output != "" {
			command = fmt.Sprintf("%-38s → %s", command, output)
		}
		played = append(append(played, command), sent...)
	}
	if s.server != nil { // there is more than a comment
		s.end()
	}
	return strings.Join(played, "\n")
}

// do does what a command says, and returns what it prints, and the requests if they are shown.
func (s *storyStage) do(words []string) (output string, sent []string) {
	s.t.Helper()
	start := time.Now()
	if words[0] != "new" && !s.traced {
		s.collect()
	}
	output, err := s.command(words[0], words[1:])
	if err != nil {
		s.t.Fatalf("%q: %v", words, err)
	}
	var beside []string
	took := time.Since(start)
	synctest.Wait() // for a refresh that a hit has begun
	switch words[0] {
	case "lookup", "confirm", "is-served":
		if !s.traced && s.alone && s.collect() > 0 {
			beside = append(beside, "asked")
		}
	case "sleep", "running", "await-request":
		took = 0
	}
	if s.alone && took > 0 {
		beside = append(beside, took.String())
	}
	if len(beside) > 0 {
		output += " (" + strings.Join(beside, ", ") + ")"
	}
	if s.traced {
		sent = s.trace()
	}
	return strings.TrimSpace(output), sent
}

// collect keeps the requests since it was called last, and counts them.
func (s *storyStage) collect() int {
	requests := s.server.TakeRequests()
	for _, r := range requests {
		s.sent = append(s.sent, fmt.Sprintf("%s %d", r.Path, r.Code))
	}
	return len(requests)
}

// trace returns the requests since it was called last. Those of several groups are sent side by
// side, and are listed by their paths.
func (s *storyStage) trace() (lines []string) {
	var live []string // requests one after the other, none of them of the document
	groups := map[string]bool{}
	flush := func() {
		if len(groups) > 1 {
			slices.Sort(live)
		}
		lines, live = append(lines, live...), nil
		clear(groups)
	}
	for _, r := range s.server.TakeRequests() {
		line := strings.Replace("  "+r.String(), "  v2beta1+", "  v2+", 1)
		if parts := strings.Split(r.Path, "/"); len(parts) > 2 { // "", "api", VERSION; or "", "apis", GROUP, VERSION
			live = append(live, line)
			groups[strings.Join(parts[:3], "/")] = true
			continue
		}
		flush()
		lines = append(lines, line)
	}
	flush()
	return lines
}

// begin makes a server and a mapper. The arguments are the sort of server, and options.
func (s *storyStage) begin(args []string) error {
	var opts apiutil.DynamicRESTMapperOptions
	durations := map[string]*time.Duration{
		"RefreshInterval": &opts.RefreshInterval,
		"MaxAge":          &opts.MaxAge,
		"NegativeTTL":     &opts.NegativeTTL,
		"UnhealthyAfter":  &opts.UnhealthyAfter,
		"RequestTimeout":  &opts.RequestTimeout,
	}
	s.metrics, s.began, s.sent, s.cache = &recordedMetrics{}, time.Now(), nil, nil
	for _, arg := range args {
		name, value, ok := strings.Cut(arg, "=")
		if !ok {
			opts.WatchAPIs = opts.WatchAPIs || arg == "watch"
			continue
		}
		d, err := time.ParseDuration(value)
		if err != nil {
			return err
		}
		*durations[name] = d
	}
	s.log, opts.Logger = newTestLog()
	opts.Metrics = s.metrics
	if s.server = newServer(s.forms); s.traced { // its scripts say what is served besides
		s.server.SetGroups(append(s.server.Groups()[:1], fakeGroup("apps", fakeVersion("v1", "Deployment")))...)
	}
	s.options, s.watched = opts, newWatchServer(s.server)
	s.mapper = newMapperThrough(s.t, s.server, s.watched, opts)
	s.subscribers, s.begun, s.controllers = map[string]*subscriber{}, map[string]*begunCalls{}, map[string]*controller{}
	return nil
}

// end stops whatever goes on.
func (s *storyStage) end() {
	s.server.ClearFaults()
	for _, c := range s.controllers {
		c.cancel()
		s.t.Logf("controller returned: %v", <-c.returned)
	}
	for _, calls := range s.begun {
		calls.cancel()
	}
	for _, sub := range s.subscribers {
		sub.cancel()
	}
	if s.stop != nil {
		s.stop()
	}
	if s.fleet != nil {
		s.fleet.hear()
		for key := range s.fleet.Status() {
			s.fleet.Remove(key)
		}
	}
	time.Sleep(10 * time.Minute)
	for path, list := range s.watched.lists {
		if n := list.watches(); n != 0 {
			s.t.Errorf("%d watches left open at %s", n, path)
		}
	}
}

func storyFaults() map[string]fakeapi.Fault {
	return map[string]fakeapi.Fault{
		"503": fakeapi.Status(503, 0), "403": fakeapi.Status(403, 0), "hang": fakeapi.Timeout(), "refuse": fakeapi.Refused(),
		"login":       fakeapi.LoginPage(),
		"drip":        fakeapi.SlowDrip(time.Second),
		"lost":        fakeapi.Empty(404),
		"404":         fakeapi.Status(404, 0),
		"cut":         fakeapi.ResetMidBody(),
		"401":         fakeapi.Status(401, 0),
		"429":         fakeapi.Status(429, 0),
		"500":         fakeapi.Status(500, 0),
		"empty":       fakeapi.EmptyGroupList(),
		"503-once":    fakeapi.Times(1, fakeapi.Status(503, 0)),
		"refuse-once": fakeapi.Times(1, fakeapi.Refused()),
		"404-once":    fakeapi.Times(1, fakeapi.NotFound()),
		"404-twice":   fakeapi.Times(2, fakeapi.NotFound()),
		"no-route":    fakeapi.LostRoute(),
		"no-service":  fakeapi.LostService("tenant"),
		// Too busy, and when to come back:
		"busy":       fakeapi.Status(503, 1),
		"busy-once":  fakeapi.Times(1, fakeapi.Status(500, 1)),
		"busy-twice": fakeapi.Times(2, fakeapi.Status(429, 2)),
		"busy-long":  fakeapi.Status(503, 10), "busy-ages": fakeapi.Status(503, 1<<62), "403-later": fakeapi.Status(403, 1),
	}
}

// faultPlace is all requests, those of the document, of a group, or of a path.
func faultPlace(place string) func(*http.Request) bool {
	switch {
	case place == "all":
		return fakeapi.All()
	case place == "document":
		return fakeapi.At("/apis")
	case strings.HasPrefix(place, "/"):
		return fakeapi.At(place)
	}
	return fakeapi.InGroup(place)
}

// changeVersion changes a version that is served, or its place.
func (s *storyStage) changeVersion(how, group, version string, args []string) {
	groups := s.server.Groups()
	g := groups[slices.IndexFunc(groups, func(g fakeapi.Group) bool { return g.Name == group })]
	g.Versions = slices.Clone(g.Versions)
	i := slices.IndexFunc(g.Versions, func(v fakeapi.Version) bool { return v.Name == version })
	v := &g.Versions[i]
	switch how {
	case "prefer":
		first := *v
		g.Versions = slices.Insert(slices.Delete(g.Versions, i, i+1), 0, first)
	case "verbs":
		v.Resources = slices.Clone(v.Resources)
		v.Resources[slices.IndexFunc(v.Resources, func(r fakeapi.Resource) bool { return r.Kind == args[0] })].Verbs = args[1:]
	default:
		v.Stale = how == "stale"
	}
	s.server.Put(g)
}
