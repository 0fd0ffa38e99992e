// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// TestStories plays the scripts in testdata/stories on both sorts of servers: each command
// must print what the script has after its arrow. The README beside them lists the commands.
func TestStories(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join("testdata", "stories", "*.txt"))
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
				eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
					if only := storyMode(story); only != "" && !strings.HasSuffix(t.Name(), "/"+only) {
						return
					}
					for turn := range storyTurns(story) {
						inBubble(t, func(t *testing.T) {
							got := playStory(t, story, forms, turn)
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

// storyMode returns the only sort of server that a story is for, or "".
func storyMode(story string) string {
	for mode := range bothModes {
		if strings.Contains(story, "new "+mode) {
			return mode
		}
	}
	return ""
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

// playStory returns the story with what its commands print now.
func playStory(t *testing.T, story string, forms fakeapi.Forms, turn int) string {
	s := &storyStage{t: t, scriptStage: scriptStage{forms: forms}, alone: storyTurns(story) == 1}
	var played []string
	for line := range strings.Lines(story) {
		command, _, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " → ")
		told := ""
		if alternatives, ok := strings.CutPrefix(command, "either "); ok {
			all := strings.Split(alternatives, " | ")
			s.do(strings.Fields(all[turn%len(all)]))
		} else if !strings.HasPrefix(command, "#") {
			told = s.do(strings.Fields(command))
		}
		if command = strings.TrimRight(command, " "); told != "" {
			command = fmt.Sprintf("%-38s → %s", command, told)
		}
		played = append(played, command)
	}
	s.end()
	return strings.Join(played, "\n")
}

// A storyStage is a scriptStage in a bubble, with all that may go on in the background.
type storyStage struct {
	scriptStage
	t           *testing.T
	alone       bool // there is no "either", so a lookup asks the server, and takes its time, each time the same
	log         *testLog
	generation  uint64
	stop, ready func()
	subscribers map[string]*subscriber
	waits       map[string]*waiting
	controllers map[string]*controller
	metrics     *recordedMetrics
	watched     *watchServer
	began       time.Time
	used        map[string]*meta.RESTMapping // what confirm and doubt are about
}

// do does what a command says, and returns what it prints.
func (s *storyStage) do(words []string) string {
	s.t.Helper()
	start := time.Now()
	if words[0] != "new" {
		s.server.TakeRequests()
	}
	told, err := s.command(words[0], words[1:])
	if err != nil {
		s.t.Fatalf("%q: %v", words, err)
	}
	var beside []string
	if words[0] == "lookup" && s.alone && len(s.server.TakeRequests()) > 0 {
		beside = append(beside, "asked")
	}
	if took := time.Since(start); s.alone && took > 0 && words[0] != "sleep" && words[0] != "ask" {
		beside = append(beside, took.String())
	}
	if len(beside) > 0 {
		told += " (" + strings.Join(beside, ", ") + ")"
	}
	return strings.TrimSpace(told)
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
		told, err = s.lookup(args[0], args[1], args[2], args[3:])
		if strings.HasPrefix(told, "error: ") {
			told = "failed"
		}
		return told, err
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
	case "status", "metrics", "use", "confirm", "doubt", "watching", "crd":
		return s.observe(name, args)
	case "subscribe", "changes", "wait", "waits", "run", "runs", "log":
		return s.background(name, args), nil
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

// begin makes a server and a mapper. The arguments are the sort of server, and options.
func (s *storyStage) begin(args []string) error {
	var opts apiutil.DynamicRESTMapperOptions
	durations := map[string]*time.Duration{
		"RefreshInterval": &opts.RefreshInterval, "MaxAge": &opts.MaxAge, "NegativeTTL": &opts.NegativeTTL, "UnhealthyAfter": &opts.UnhealthyAfter,
	}
	s.metrics, s.began, s.used = &recordedMetrics{}, time.Now(), map[string]*meta.RESTMapping{}
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
	s.server, s.groups = newServer(s.forms), []fakeapi.Group{
		fakeGroup("", fakeVersion("v1", "Pod", "Node:cluster")), fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")),
		fakeGroup("other.example.com", fakeVersion("v1", "Other")),
	}
	s.watched = newWatchServer(s.server)
	s.mapper = newMapperThrough(s.t, s.server, s.watched, opts)
	s.subscribers, s.waits, s.controllers = map[string]*subscriber{}, map[string]*waiting{}, map[string]*controller{}
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
		<-w.done
	}
	for _, sub := range s.subscribers {
		sub.cancel()
	}
	if s.stop != nil {
		s.stop()
	}
	time.Sleep(10 * time.Minute)
}

// kindOf reads GROUP/VERSION/KIND.
func kindOf(text string) schema.GroupVersionKind {
	parts := strings.Split(text, "/")
	return schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}
}

// askAll looks a kind up in every form, and prints the answer that all have, or who has which.
func (s *storyStage) askAll(gvk schema.GroupVersionKind) string {
	var answers []string
	by := map[string][]string{}
	for _, form := range lookupForms(gvk) {
		got, err := form.ask(context.Background(), s.mapper)
		switch {
		case meta.IsNoMatchError(err):
			got = "no match"
		case err != nil:
			got = "failed"
		case got == form.want:
			got = "served"
		}
		if by[got] == nil {
			answers = append(answers, got)
		}
		by[got] = append(by[got], strings.TrimSpace(form.name))
	}
	for i, answer := range answers[1:] {
		answers[i+1] = answer + ": " + strings.Join(by[answer], ", ")
	}
	return strings.Join(answers, "; ")
}

// background does the commands for what goes on meanwhile. The first argument is a name.
func (s *storyStage) background(command string, args []string) string {
	kinds := func() (all []schema.GroupVersionKind) {
		for _, arg := range args[1:] {
			all = append(all, kindOf(arg))
		}
		return all
	}
	switch command {
	case "subscribe":
		s.subscribers[args[0]] = subscribe(s.mapper)
		synctest.Wait()
	case "changes":
		lines := s.subscribers[args[0]].take(s.t)
		slices.SortStableFunc(lines, func(a, b string) int { return -strings.Compare(a[:3], b[:3]) })
		if len(lines) == 0 {
			return "none"
		}
		return strings.Join(lines, "; ")
	case "wait":
		s.waits[args[0]] = waitFor(s.mapper, kinds()...)
	case "waits":
		if w := s.waits[args[0]]; !w.over() {
			return "waits"
		} else {
			return errorWord(w.err)
		}
	case "run":
		s.controllers[args[0]] = runController(s.mapper, kinds()...)
	case "runs":
		synctest.Wait()
		c := s.controllers[args[0]]
		if c.twice.Load() {
			s.t.Errorf("%s runs twice at once", args[0])
		}
		return fmt.Sprintf("begun %d, ended %d", c.begun.Load(), c.ended.Load())
	case "log":
		synctest.Wait()
		lines := withoutVerbose(s.log.take(""))
		if len(lines) == 0 {
			return "none"
		}
		if len(args) == 0 {
			lines = messages(lines)
		}
		return strings.Join(lines, "; ")
	}
	return ""
}

// messages returns the messages of log lines.
func messages(lines []string) (all []string) {
	for _, line := range lines {
		level, rest, _ := strings.Cut(line, ` "msg"=`)
		message, _ := strconv.QuotedPrefix(rest)
		all = append(all, strings.TrimSpace(level)+" "+message)
	}
	return all
}

// observe does the commands about single parts of a mapper.
func (s *storyStage) observe(command string, args []string) (told string, err error) {
	switch command {
	case "status":
		return statusText(s.mapper, s.began), nil
	case "metrics":
		told = strings.Join(s.metrics.take(), "; ")
		if last := s.mapper.Status().LastSuccess; !s.metrics.last.Equal(last) {
			s.t.Errorf("the last success was at %v, metrics are told %v", last, s.metrics.last)
		}
		return told, nil
	case "watching":
		return fmt.Sprint(s.mapper.Status().Watching), nil
	case "use":
		gvk := kindOf(args[0])
		s.used[args[0]], err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
		s.mapper.Use(gvk)
	case "confirm", "doubt":
		return s.confirm(args[0], command == "confirm")
	case "crd":
		list := s.watched.lists[crdsPath]
		switch args[0] {
		case "put":
			list.put("any")
		case "drop":
			list.drop()
		case "fail":
			code, _ := strconv.Atoi(args[1])
			list.setFailure(listFailure{code: code, refused: args[1] == "refuse"})
		}
	}
	return "", err
}

// confirm confirms or doubts the mapping of a kind that was used last, and prints the scope.
func (s *storyStage) confirm(kind string, certain bool) (told string, err error) {
	gvk := kindOf(kind)
	if s.used[kind] == nil {
		if s.used[kind], err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version); err != nil {
			return "", err
		}
		s.server.TakeRequests()
	}
	var now *meta.RESTMapping
	if certain {
		now, err = s.mapper.Confirm(context.Background(), s.used[kind])
	} else {
		s.mapper.Doubt(s.used[kind])
	}
	synctest.Wait()
	if len(s.server.TakeRequests()) > 0 {
		told = " (asked)"
	}
	if !certain {
		now, err = s.mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	}
	switch {
	case meta.IsNoMatchError(err):
		return "no match" + told, nil
	case err != nil:
		return "failed" + told, nil
	}
	s.used[kind] = now
	return string(now.Scope.Name()) + told, nil
}

// upset changes what the server serves, or how.
func (s *storyStage) upset(name string, args []string) error {
	switch name {
	case "lag":
		lag, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		s.server.SetLag(map[string]fakeapi.Part{"document": fakeapi.PartDocument, "lists": fakeapi.PartLists}[args[0]], lag)
	case "fail":
		fault, ok := map[string]fakeapi.Fault{
			"503": fakeapi.Status(503, 5), "403": fakeapi.Status(403, 0), "hang": fakeapi.Timeout(), "refuse": fakeapi.Refused(),
			"login": fakeapi.LoginPage(), "lost": fakeapi.Empty(404), "404": fakeapi.Status(404, 0), "cut": fakeapi.ResetMidBody(), "401": fakeapi.Status(401, 0), "429": fakeapi.Status(429, 0), "500": fakeapi.Status(500, 0),
			"empty": fakeapi.EmptyGroupList(), "503-once": fakeapi.Times(1, fakeapi.Status(503, 0)), "refuse-once": fakeapi.Times(1, fakeapi.Refused()),
		}[args[0]]
		if !ok {
			return errors.New("no such fault")
		}
		s.server.SetFault(faultPlace(args[1]), fault)
	case "latency":
		latency, err := time.ParseDuration(args[0])
		s.server.SetLatency(latency)
		return err
	case "boot":
		s.ready = s.server.Boot(fakeapi.Booting{Unknown: args[1:], Answering: args[0] == "answering", Absent: args[0] == "absent"})
	case "ready":
		if len(args) == 0 {
			s.ready()
			return nil
		}
		d, err := time.ParseDuration(args[0])
		time.AfterFunc(d, s.ready)
		return err
	default:
		return s.change(name, args)
	}
	return nil
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
