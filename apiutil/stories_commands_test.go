// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/apiutil/served"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/follow"
)

func (s *storyStage) command(name string, args []string) (output string, err error) {
	if call := s.call(name, args); call != nil {
		output, s.err = call(context.Background())
		return output, nil
	}
	switch name {
	case "new":
		return "", s.begin(args)
	case "warm":
		readAll(s.t, s.mapper)
	case "ask":
		return s.askAll(kindOf(args[0])), nil
	case "reset":
		s.mapper.Reset()
	case "miss":
		for _, err := range []error{
			miss(s.mapper, "nowhere.example.com"), miss(s.mapper, otherKind.Group), missByResource(s.mapper, ""),
		} {
			if !meta.IsNoMatchError(err) {
				s.t.Errorf("a lookup of what is nowhere: %v", err)
			}
		}
	case "nothing":
	case "sleep":
		d, err := time.ParseDuration(args[0])
		time.Sleep(d)
		return "", err
	case "await-request":
		for s.collect() == 0 {
			time.Sleep(10 * time.Millisecond)
		}
	case "start":
		s.stop = startMapper(s.t, s.mapper)
	case "stop":
		s.stop()
		s.stop = nil
	case "hint":
		return cmp.Or(served.Hint(s.mapper, s.err), "none"), nil
	case "reset-on-no-match":
		return map[bool]string{true: "reset", false: "not reset"}[apiutil.ResetOnNoMatch(s.err, s.mapper)], nil
	case "health", "generation", "groups", "status", "failures", "metrics", "watching", "tried", "log":
		return s.observe(name, args), nil
	case "requests", "asked", "atmost", "atleast", "forget":
		return s.requests(name, args)
	case "begin", "ended", "wait", "waits", "run", "lingers", "ends", "quits", "cancel", "runs", "busy", "subscribe",
		"unsubscribe", "changes":
		return s.background(name, args)
	case "crd", "apiservice", "watches":
		for of, path := range map[string]string{"crd": crdsPath, "apiservice": apiServicesPath} {
			if name == of || name == "watches" {
				s.watched.lists[path].happen(args[0], args[1:])
			}
		}
	case "fleet":
		return "", s.newFleet(args)
	case "use-of", "engage", "leave", "expel", "mapper", "keys", "running", "start-fleet", "stop-fleet", "unheard", "hear", "fleet-health", "another-server",
		"fleet-reset-on-no-match":
		return s.inFleet(name, args)
	case "cache", "deferred", "short", "poll", "fresh", "invalidate", "reset-deferred":
		return s.discover(name, args)
	default:
		return "", s.upset(name, args)
	}
	return "", nil
}

// call returns what a command asks, which many may do at once: what it prints, and its error. It
// returns nil for other commands.
func (s *storyStage) call(name string, args []string) func(ctx context.Context) (string, error) {
	yes := map[bool]string{true: "yes", false: "no"}
	switch name {
	case "lookup":
		return func(ctx context.Context) (string, error) {
			output, err := lookup(ctx, s.mapper, args[0], groupOf(args[1]), args[2], args[3:]...)
			if s.traced {
				return answered(output, err), err
			}
			return answerWord(output, err), err
		}
	case "refresh":
		return func(ctx context.Context) (string, error) {
			return answerWord("fine", s.mapper.Refresh(ctx, args...)), nil
		}
	case "is-served":
		return func(ctx context.Context) (string, error) {
			is, err := served.Is(ctx, s.mapper, kindOf(args[0]))
			if err != nil && !is && !meta.IsNoMatchError(err) {
				return "failed", err
			}
			return yes[is], err
		}
	case "served":
		return func(ctx context.Context) (string, error) {
			all, err := served.List(ctx, s.mapper, args...)
			output := cmp.Or(textOfAll(all.Kinds, func(k apiutil.ServedKind) string { return mappingText(&k.Mapping) }), "none")
			if err != nil {
				output += "; failed"
			}
			return output, err
		}
	case "follow", "known":
		ask := follow.Of(s.mapper, follow.WaitBriefly).Mapping
		if name == "known" {
			ask = follow.Of(s.mapper, follow.WaitBriefly).KnownMapping
		}
		return func(context.Context) (string, error) {
			mapping, err := ask(kindOf(args[0]))
			return answerWord(mappingText(mapping), err), err
		}
	case "confirm":
		return func(ctx context.Context) (string, error) {
			now, err := follow.Of(s.mapper, follow.WaitBriefly).Confirm(ctx, kindOf(args[0]), follow.WaitBriefly)
			if err != nil {
				return answered("", err), err
			}
			return string(now.Scope.Name()), nil
		}
	case "for":
		return func(context.Context) (string, error) { return s.fleet.forKey(s.t, strings.Trim(args[0], "-")), nil }
	case "has", "list":
		return func(context.Context) (string, error) { return s.inCache(name, args[0]), nil }
	}
	return nil
}

// answerWord is answered without the text of an error.
func answerWord(answer string, err error) string {
	if err != nil && !meta.IsNoMatchError(err) {
		return "failed"
	}
	return answered(answer, err)
}

// kindOf reads GROUP/VERSION/KIND.
func kindOf(text string) schema.GroupVersionKind {
	parts := strings.Split(text, "/")
	return schema.GroupVersionKind{Group: parts[0], Version: parts[1], Kind: parts[2]}
}

func kindsOf(texts []string) (all []schema.GroupVersionKind) {
	for _, text := range texts {
		all = append(all, kindOf(text))
	}
	return all
}

func groupOf(name string) string {
	if name == "core" || name == "any" {
		return ""
	}
	return name
}

// askAll looks a kind up in every form, and prints the answer that all have, or who has which.
func (s *storyStage) askAll(gvk schema.GroupVersionKind) string {
	var answers []string
	by := map[string][]string{}
	for _, form := range lookupForms(gvk) {
		got, err := form.ask(context.Background(), s.mapper)
		if got = answerWord(got, err); got == form.want {
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

// observe does the commands about single parts of a mapper.
func (s *storyStage) observe(command string, args []string) (output string) {
	switch command {
	case "health":
		return answerWord("fine", s.mapper.Healthz(&http.Request{}))
	case "generation":
		before := s.generation
		s.generation = s.mapper.Generation()
		return map[bool]string{true: "same", false: "moved"}[s.generation == before]
	case "groups":
		return strconv.Itoa(s.mapper.Status().Groups)
	case "status":
		return statusText(s.mapper, s.began)
	case "failures":
		var names []string
		failed := s.mapper.Status().FailedGroupVersions
		for gv := range failed {
			names = append(names, gv.String())
		}
		clear(failed) // it belongs to the caller
		slices.Sort(names)
		return cmp.Or(strings.Join(names, "; "), "none")
	case "metrics":
		output = strings.Join(s.metrics.take(), "; ")
		reported, _ := s.metrics.latest()
		if last := s.mapper.Status().LastSuccess; !reported.Equal(last) {
			s.t.Errorf("the last success was at %v, metrics have %v", last, reported)
		}
	case "watching":
		open := s.mapper.Status().Watching
		if _, reported := s.metrics.latest(); reported != open {
			s.t.Errorf("watching: %t, metrics have %t", open, reported)
		}
		return fmt.Sprint(open)
	case "tried":
		var n, least, most int
		for _, list := range s.watched.lists {
			n += len(list.Requests())
		}
		if _, err := fmt.Sscan(strings.Join(args, " "), &least, &most); err != nil || n < least || n > most {
			return strconv.Itoa(n)
		}
		return "yes"
	case "log":
		lines := s.log.take("")
		if !slices.Contains(args, "verbose") {
			lines = withoutVerbose(lines)
		}
		if !slices.Contains(args, "all") {
			lines = messages(lines)
		}
		if slices.Contains(args, "sorted") {
			slices.Sort(lines)
		}
		return cmp.Or(strings.Join(lines, "; "), "none")
	}
	return output
}

// messages returns the messages of log lines, and the reasons.
func messages(lines []string) (all []string) {
	for _, line := range lines {
		level, rest, _ := strings.Cut(line, ` "msg"=`)
		message, _ := strconv.QuotedPrefix(rest)
		_, reason, _ := strings.Cut(rest, ` "reason"=`)
		reason, _ = strconv.QuotedPrefix(reason)
		all = append(all, strings.TrimSpace(strings.TrimSpace(level)+" "+message+" "+reason))
	}
	return all
}

// requests tells of the requests since they were last shown or forgotten.
func (s *storyStage) requests(command string, args []string) (output string, err error) {
	switch command {
	case "requests":
		output = cmp.Or(strings.Join(s.sent, "; "), "none")
	case "asked":
		output = cmp.Or(strings.Join(slices.Compact(slices.Sorted(slices.Values(s.sent))), "; "), "none")
	case "atmost", "atleast":
		n, err := strconv.Atoi(args[0])
		if output = "yes"; len(s.sent) > n && command == "atmost" || len(s.sent) < n && command == "atleast" {
			output = fmt.Sprintf("%d: %s", len(s.sent), strings.Join(s.sent, "; "))
		}
		return output, err
	}
	s.sent = nil
	return output, nil
}

// begunCalls are calls of one sort that go on in the background.
type begunCalls struct {
	cancel  context.CancelFunc
	n       int
	answers chan string
}

func beginCalls(n int, call func(context.Context) string) *begunCalls {
	ctx, cancel := context.WithCancel(context.Background())
	c := &begunCalls{cancel, n, make(chan string, n)}
	for range n {
		go func() { c.answers <- call(ctx) }()
	}
	return c
}

// ended returns what the calls have answered, the same once; "waits" if not all have.
func (c *begunCalls) ended() string {
	synctest.Wait()
	if len(c.answers) < c.n {
		return "waits"
	}
	var all []string
	for range c.n {
		all = append(all, <-c.answers)
	}
	slices.Sort(all)
	return strings.Join(slices.Compact(all), "; ")
}

// background does the commands for what goes on meanwhile. The first argument is a name.
func (s *storyStage) background(command string, args []string) (output string, err error) {
	name := args[0]
	switch command {
	case "begin":
		call, n := s.call(args[2], args[3:]), 0
		if n, err = strconv.Atoi(args[1]); call == nil {
			return "", errors.New("it cannot be begun")
		}
		s.begun[name] = beginCalls(n, func(ctx context.Context) string {
			start := time.Now()
			output, _ := call(ctx)
			return output + " after " + time.Since(start).String()
		})
	case "wait":
		s.begun[name] = beginCalls(1, func(ctx context.Context) string {
			return strings.ReplaceAll(answered("fine", served.Wait(ctx, s.mapper, kindsOf(args[1:])...)), "\n", "; ")
		})
	case "ended", "waits":
		return s.begun[name].ended(), nil
	case "subscribe":
		s.subscribers[name] = subscribe(s.mapper)
	case "unsubscribe":
		s.subscribers[name].close(s.t)
		delete(s.subscribers, name)
	case "changes":
		return cmp.Or(strings.Join(s.subscribers[name].take(s.t), "; "), "none"), nil
	case "run":
		s.controllers[name] = runController(s.t, s.mapper, kindsOf(args[1:]))
	case "runs":
		c := s.controllers[name]
		return fmt.Sprintf("begun %d, ended %d", c.begun.Load(), c.ended.Load()), nil
	case "lingers":
		d, err := time.ParseDuration(args[1])
		s.controllers[name].lingers.Store(int64(d))
		return "", err
	case "cancel":
		if calls := s.begun[name]; calls != nil {
			calls.cancel()
			return calls.ended(), nil
		}
		c := s.controllers[name]
		delete(s.controllers, name)
		c.cancel()
		return strings.ReplaceAll(answered("fine", <-c.returned), "\n", "; "), nil
	case "ends", "quits":
		result := runResults[args[1]]
		if c := s.controllers[name]; command == "ends" {
			c.ends.Store(&result)
		} else {
			c.quits <- result
		}
	case "busy":
		d, err := time.ParseDuration(args[1])
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			_ = miss(s.mapper, name, "v1")
		}
		return "", err
	}
	return "", err
}

// another is a server that goes on serving what is served now.
func (s *storyStage) another() *fakeapi.Server {
	server := fakeapi.New(s.server.Groups()...)
	server.SetForms(s.forms)
	return server
}

// upset changes what the server serves, or how.
func (s *storyStage) upset(name string, args []string) error {
	switch name {
	case "serve":
		s.server.PutVersion(groupOf(args[0]), fakeVersion(args[1], strings.Split(args[2], ",")...))
	case "typical":
		n, err := strconv.Atoi(args[0])
		s.server.SetGroups(fakeapi.Typical(n, 1, 1)...)
		return err
	case "remove":
		if len(args) == 1 {
			s.server.Remove(groupOf(args[0]))
		}
		for _, version := range args[1:] {
			s.server.RemoveVersion(groupOf(args[0]), version)
		}
	case "prefer", "stale", "recover", "verbs":
		s.changeVersion(name, groupOf(args[0]), args[1], args[2:])
	case "lag":
		lag, err := time.ParseDuration(args[1])
		s.server.SetLag(map[string]fakeapi.Part{"document": fakeapi.PartDocument, "lists": fakeapi.PartLists}[args[0]], lag)
		return err
	case "freeze":
		s.server.SetFault(fakeapi.At(args[0]), fakeapi.Func("behind", s.another().Client().Transport.RoundTrip))
	case "replica":
		if args[0] == "level" {
			s.replica.SetGroups(s.server.Groups()...)
			return nil
		}
		s.replica = s.another()
		all := fakeapi.RoundRobin(s.server, s.replica)
		documents := fakeapi.RoundRobin(s.server, s.server, s.replica, s.replica) // /api and /apis each
		s.watched.next = fakeapi.Balancer(func(req *http.Request) *fakeapi.Server {
			switch {
			case args[0] == "all":
				return all(req)
			case req.URL.Path == "/api" || req.URL.Path == "/apis":
				return documents(req)
			}
			return s.server
		})
	case "heal":
		s.server.ClearFaults()
	case "fail":
		fault, ok := storyFaults()[args[0]]
		if !ok {
			return errors.New("no such fault")
		}
		s.server.SetFault(faultPlace(args[1]), fault)
	case "ids":
		forms := s.forms
		forms.AuditIDs = map[string]fakeapi.AuditIDs{
			"all": fakeapi.AuditAll, "successes": fakeapi.AuditSuccesses, "none": fakeapi.AuditNone, "twice": fakeapi.AuditTwice,
		}[args[0]]
		s.server.SetForms(forms)
	case "speak":
		forms := map[string]fakeapi.Forms{
			"protobuf":              fakeapi.Aggregated(),
			"JSON":                  {V2: true, ETag: true},
			"protobuf-without-ETag": {V2: true, Protobuf: true},
			"JSON-without-ETag":     {V2: true}, "v2beta1": fakeapi.V2Beta1Only(), "legacy": fakeapi.Legacy(),
		}[args[0]]
		forms.StatusNotFound = s.forms.StatusNotFound
		s.server.SetForms(forms)
	case "latency":
		latency, err := time.ParseDuration(args[0])
		s.server.SetLatency(latency)
		return err
	case "boot":
		s.ready = s.server.Boot(
			fakeapi.Booting{Unknown: args[1:], Answering: args[0] == "answering", Absent: args[0] == "absent"},
		)
	case "ready":
		if len(args) == 0 {
			s.ready()
			return nil
		}
		d, err := time.ParseDuration(args[0])
		time.AfterFunc(d, s.ready)
		return err
	default:
		return errors.New("no such command")
	}
	return nil
}
