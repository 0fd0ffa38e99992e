// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/restmapper"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

var rewriteScripts = flag.Bool("rewrite", false, "write what the scripts in testdata print into them")

// TestStories plays the scripts in testdata/stories and testdata/requests: each command must
// print what the script has after its arrow, and the requests below it if these are shown. The
// READMEs beside them list the commands.
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
		stories := strings.Split(strings.TrimSpace(string(script)), "\n\n")
		for i, story := range stories {
			title, _, _ := strings.Cut(strings.TrimPrefix(story, "# "), "\n")
			t.Run(strings.TrimSuffix(filepath.Base(path), ".txt")+"/"+title, func(t *testing.T) {
				eachMode(t, storyModes(path, story), func(t *testing.T, forms fakeapi.Forms) {
					for turn := range storyTurns(story) {
						inBubble(t, func(t *testing.T) {
							s := &storyStage{t: t, forms: forms, traced: isTraced(path), alone: storyTurns(story) == 1}
							got := s.play(story, turn)
							if *rewriteScripts {
								stories[i] = got
							} else if diff := cmp.Diff(strings.Split(story, "\n"), strings.Split(got, "\n")); diff != "" {
								t.Errorf("%s, turn %d (-meant +seen):\n%s", path, turn, diff)
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

// isTraced reports whether a script has all requests, below the commands that send them.
func isTraced(path string) bool { return filepath.Base(filepath.Dir(path)) == "requests" }

// storyModes returns the sorts of servers that a story is for: the name of the script, or
// "new", may name one. Requests are the same in both versions of the aggregated document.
func storyModes(path, story string) map[string]fakeapi.Forms {
	modes := maps.Clone(bothModes)
	if isTraced(path) {
		modes = maps.Clone(allModes)
	}
	for only := range bothModes {
		if strings.HasPrefix(filepath.Base(path), only) || strings.Contains(story, "new "+only) {
			maps.DeleteFunc(modes, func(mode string, _ fakeapi.Forms) bool { return (mode == "legacy") != (only == "legacy") })
		}
	}
	return modes
}

// storyTurns returns how often a story is played: "either" does something else each time.
func storyTurns(story string) int {
	turns := 1
	for line := range strings.Lines(story) {
		if strings.HasPrefix(line, "either ") {
			turns = max(turns, strings.Count(line, " | ")+1)
		}
	}
	return turns
}

// play returns the story with what its commands print now.
func (s *storyStage) play(story string, turn int) string {
	var played []string
	for line := range strings.Lines(story) {
		command, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " → ")
		told, sent := "", []string(nil)
		if alternatives, ok := strings.CutPrefix(command, "either "); ok {
			all := strings.Split(alternatives, " | ")
			s.do(strings.Fields(all[turn%len(all)]))
		} else if strings.HasPrefix(command, "  ") {
			continue // a request
		} else if !strings.HasPrefix(command, "#") {
			told, sent = s.do(strings.Fields(command))
		}
		if command = strings.TrimRight(command, " "); told != "" {
			command = fmt.Sprintf("%-38s → %s", command, told)
		}
		played = append(append(played, command), sent...)
	}
	if s.server != nil { // there is more than a comment
		s.end()
	}
	return strings.Join(played, "\n")
}

// A storyStage is a server, a mapper of it, what a story has made of them, and all that may go
// on in the background.
type storyStage struct {
	t           *testing.T
	forms       fakeapi.Forms
	server      *fakeapi.Server
	mapper      *apiutil.DynamicRESTMapper
	traced      bool // all requests are shown
	alone       bool // there is no "either", so a lookup asks the server, and takes its time, each time the same
	log         *testLog
	generation  uint64
	stop, ready func()
	subscribers map[string]*subscriber
	waits       map[string]waiting
	controllers map[string]*controller
	metrics     *recordedMetrics
	watched     *watchServer
	began       time.Time
	sent        []string // the requests since they were last shown or forgotten
	err         error    // of the last lookup
	cache       *cachedView
	deferred    *restmapper.DeferredDiscoveryRESTMapper // over the cache
	fleet       *fleetStage
	options     apiutil.DynamicRESTMapperOptions // of the mapper, and of fleets
}

// do does what a command says, and returns what it prints, and the requests if they are shown.
func (s *storyStage) do(words []string) (told string, sent []string) {
	s.t.Helper()
	start := time.Now()
	if words[0] != "new" && !s.traced {
		s.collect()
	}
	told, err := s.command(words[0], words[1:])
	if err != nil {
		s.t.Fatalf("%q: %v", words, err)
	}
	var beside []string
	took := time.Since(start)
	synctest.Wait() // for a refresh that a hit has begun
	if s.traced {
		sent = s.trace()
	} else if words[0] == "lookup" && s.alone && s.collect() > 0 {
		beside = append(beside, "asked")
	}
	if s.alone && took > 0 && words[0] != "sleep" && words[0] != "ask" && words[0] != "running" {
		beside = append(beside, took.String())
	}
	if len(beside) > 0 {
		told += " (" + strings.Join(beside, ", ") + ")"
	}
	return strings.TrimSpace(told), sent
}

// collect keeps the requests since it was called last, and counts them.
func (s *storyStage) collect() int {
	requests := s.server.TakeRequests()
	for _, r := range requests {
		s.sent = append(s.sent, fmt.Sprintf("%s %d", r.Path, r.Code))
	}
	return len(requests)
}

func (s *storyStage) command(name string, args []string) (told string, err error) {
	ctx := context.Background()
	switch name {
	case "new":
		return "", s.begin(args)
	case "warm":
		readAll(s.t, s.mapper)
	case "ask":
		return s.askAll(kindOf(args[0])), nil
	case "lookup":
		told, s.err = lookup(ctx, s.mapper, args[0], groupOf(args[1]), args[2], args[3:]...)
		if s.traced {
			return answered(told, s.err), nil
		}
		return answerWord(told, s.err), nil
	case "reset":
		if len(args) == 0 {
			s.mapper.Reset()
		}
		for _, group := range args {
			s.mapper.ResetGroup(group)
		}
	case "refresh":
		return errorWord(s.mapper.Refresh(ctx, args...)), nil
	case "miss":
		missElsewhere(s.t, s.mapper)
	case "nothing":
	case "sleep":
		d, err := time.ParseDuration(args[0])
		time.Sleep(d)
		return "", err
	case "start":
		s.stop = startMapper(s.t, s.mapper)
		synctest.Wait()
	case "stop":
		s.stop()
		s.stop = nil
	case "health":
		return errorWord(s.mapper.Healthz(&http.Request{})), nil
	case "generation":
		before := s.generation
		s.generation = s.mapper.Generation()
		return map[bool]string{true: "same", false: "moved"}[s.generation == before], nil
	case "groups":
		synctest.Wait()
		return strconv.Itoa(s.mapper.Status().Groups), nil
	case "reset-on-no-match":
		return map[bool]string{true: "reset", false: "not reset"}[apiutil.ResetOnNoMatch(s.err, s.mapper)], nil
	case "status", "failures", "metrics", "use", "confirm", "doubt", "requests", "asked", "atmost", "atleast", "forget",
		"watching", "crd", "apiservice", "watches", "tried":
		return s.observe(name, args)
	case "subscribe", "unsubscribe", "changes", "wait", "waits", "run", "lingers", "cancel", "runs", "busy", "log":
		return s.background(name, args), nil
	case "fleet", "for", "use-of", "engage", "leave", "expel", "mapper", "keys", "running", "start-fleet", "stop-fleet":
		return s.inFleet(name, args)
	case "cache", "has", "list", "deferred", "poll", "reads", "fresh", "invalidate", "reset-deferred":
		return s.discover(name, args)
	default:
		return "", s.upset(name, args)
	}
	return "", nil
}

func errorWord(err error) string {
	if err != nil {
		return "failed"
	}
	return "fine"
}

// answerWord is answered without the text of an error.
func answerWord(answer string, err error) string {
	if err != nil && !meta.IsNoMatchError(err) {
		return "failed"
	}
	return answered(answer, err)
}

// begin makes a server and a mapper. The arguments are the sort of server, and options.
func (s *storyStage) begin(args []string) error {
	var opts apiutil.DynamicRESTMapperOptions
	durations := map[string]*time.Duration{
		"RefreshInterval": &opts.RefreshInterval, "MaxAge": &opts.MaxAge, "NegativeTTL": &opts.NegativeTTL, "UnhealthyAfter": &opts.UnhealthyAfter,
		"RequestTimeout": &opts.RequestTimeout,
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
	s.subscribers, s.waits, s.controllers = map[string]*subscriber{}, map[string]waiting{}, map[string]*controller{}
	return nil
}

// end stops whatever goes on.
func (s *storyStage) end() {
	s.server.ClearFaults()
	for _, c := range s.controllers {
		c.cancel()
		<-c.returned
	}
	for _, w := range s.waits {
		w.cancel()
	}
	for _, sub := range s.subscribers {
		sub.cancel()
	}
	if s.stop != nil {
		s.stop()
	}
	if s.fleet != nil {
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
