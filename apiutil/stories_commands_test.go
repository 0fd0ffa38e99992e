// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// What the commands of the stories do that have several words, or several of one sort.

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
	case "unsubscribe":
		s.subscribers[args[0]].close(s.t)
		delete(s.subscribers, args[0])
	case "changes":
		lines := s.subscribers[args[0]].take(s.t)
		slices.SortStableFunc(lines, func(a, b string) int { return -strings.Compare(a[:3], b[:3]) })
		return cmp.Or(strings.Join(lines, "; "), "none")
	case "wait":
		s.waits[args[0]] = waitFor(s.mapper, kinds())
	case "waits":
		synctest.Wait()
		select {
		case err := <-s.waits[args[0]].done:
			return errorWord(err)
		default:
			return "waits"
		}
	case "run":
		s.controllers[args[0]] = runController(s.t, s.mapper, kinds())
	case "lingers":
		d, _ := time.ParseDuration(args[1])
		s.controllers[args[0]].lingers.Store(int64(d))
	case "cancel":
		c := s.controllers[args[0]]
		delete(s.controllers, args[0])
		c.cancel()
		return errorWord(<-c.returned)
	case "busy":
		d, _ := time.ParseDuration(args[1])
		for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
			s.mapper.ResetGroup(args[0])
			_ = miss(s.mapper, args[0], "v1")
		}
	case "runs":
		synctest.Wait()
		c := s.controllers[args[0]]
		return fmt.Sprintf("begun %d, ended %d", c.begun.Load(), c.ended.Load())
	case "log":
		synctest.Wait()
		lines := s.log.take("")
		if len(args) == 0 || args[0] != "verbose" {
			lines = withoutVerbose(lines)
		}
		if len(args) == 0 || args[0] != "all" {
			lines = messages(lines)
		}
		return cmp.Or(strings.Join(lines, "; "), "none")
	}
	return ""
}

// A waiting is a call of WaitForKinds under way.
type waiting struct {
	cancel context.CancelFunc
	done   chan error
}

func waitFor(m *apiutil.DynamicRESTMapper, gvks []schema.GroupVersionKind) waiting {
	ctx, cancel := context.WithCancel(context.Background())
	w := waiting{cancel, make(chan error, 1)}
	go func() { w.done <- m.WaitForKinds(ctx, gvks...) }()
	return w
}

// A controller is what RunWhileServed runs.
type controller struct {
	begun, now, ended atomic.Int32
	lingers           atomic.Int64 // how long after it was cancelled
	returned          chan error   // what RunWhileServed has returned
	cancel            context.CancelFunc
}

func runController(t *testing.T, m *apiutil.DynamicRESTMapper, gvks []schema.GroupVersionKind) *controller {
	ctx, cancel := context.WithCancel(context.Background())
	c := &controller{returned: make(chan error, 1), cancel: cancel}
	go func() {
		c.returned <- m.RunWhileServed(ctx, func(ctx context.Context) error {
			c.begun.Add(1)
			if c.now.Add(1) > 1 {
				t.Error("it runs twice at once")
			}
			<-ctx.Done()
			time.Sleep(time.Duration(c.lingers.Load()))
			c.now.Add(-1)
			c.ended.Add(1)
			return nil
		}, gvks...)
	}()
	return c
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

// observe does the commands about single parts of a mapper.
func (s *storyStage) observe(command string, args []string) (told string, err error) {
	switch command {
	case "status":
		return statusText(s.mapper, s.began), nil
	case "failures":
		synctest.Wait()
		failed := s.mapper.Status().FailedGroupVersions
		told = textOfAll(slices.SortedFunc(maps.Keys(failed), func(a, b schema.GroupVersion) int { return strings.Compare(a.String(), b.String()) }), schema.GroupVersion.String)
		clear(failed) // it belongs to the caller
		return cmp.Or(told, "none"), nil
	case "requests", "asked", "atmost", "atleast", "forget":
		return s.requests(command, args)
	case "metrics":
		told = strings.Join(s.metrics.take(), "; ")
		if last := s.mapper.Status().LastSuccess; !s.metrics.last.Equal(last) {
			s.t.Errorf("the last success was at %v, metrics are told %v", last, s.metrics.last)
		}
		return told, nil
	case "watching":
		synctest.Wait()
		open := s.mapper.Status().Watching
		if s.metrics.watching != open {
			s.t.Errorf("watching: %t, metrics are told %t", open, s.metrics.watching)
		}
		return fmt.Sprint(open), nil
	case "confirm":
		return s.confirm(kindOf(args[0]))
	case "crd", "apiservice", "watches":
		for name, path := range map[string]string{"crd": crdsPath, "apiservice": apiServicesPath} {
			if command == name || command == "watches" {
				s.watched.lists[path].happen(args[0], args[1:])
			}
		}
	case "tried":
		n, bounds := 0, [2]int{}
		for _, list := range s.watched.lists {
			n += list.count("list") + list.count("watch")
		}
		for i, arg := range args {
			bounds[i], _ = strconv.Atoi(arg)
		}
		if n < bounds[0] || n > bounds[1] {
			return strconv.Itoa(n), nil
		}
		return "yes", nil
	}
	return "", err
}

// requests tells of the requests since they were last shown or forgotten.
func (s *storyStage) requests(command string, args []string) (told string, err error) {
	synctest.Wait()
	s.collect()
	switch command {
	case "requests":
		told = cmp.Or(strings.Join(s.sent, "; "), "none")
	case "asked":
		told = cmp.Or(strings.Join(slices.Compact(slices.Sorted(slices.Values(s.sent))), "; "), "none")
	case "atmost", "atleast":
		n, err := strconv.Atoi(args[0])
		if told = "yes"; len(s.sent) > n && command == "atmost" || len(s.sent) < n && command == "atleast" {
			told = fmt.Sprintf("%d: %s", len(s.sent), strings.Join(s.sent, "; "))
		}
		return told, err
	}
	s.sent = nil
	return told, nil
}

// confirm confirms the mapping of a kind, and prints the scope.
func (s *storyStage) confirm(gvk schema.GroupVersionKind) (told string, err error) {
	now, err := follow.Of(s.mapper, false).Confirm(context.Background(), gvk, false)
	synctest.Wait()
	if s.collect() > 0 {
		told = " (asked)"
	}
	switch {
	case meta.IsNoMatchError(err):
		return "no match" + told, nil
	case err != nil:
		return "unconfirmed" + told, nil
	}
	return string(now.Scope.Name()) + told, nil
}

// A fleetStage is a fleet in a story, with its mappers and engagements by name.
type fleetStage struct {
	*fleetTest
	mappers map[string]*apiutil.DynamicRESTMapper
	leave   map[string]func()
	stop    func() error
}

// inFleet does the commands about fleets. The key "" is written as "-".
func (s *storyStage) inFleet(command string, args []string) (told string, err error) {
	f, key := s.fleet, ""
	if len(args) > 0 {
		key = strings.Trim(args[0], "-")
	}
	switch command {
	case "fleet":
		s.fleet = &fleetStage{&fleetTest{apiutil.NewFleet(s.options), s.server}, map[string]*apiutil.DynamicRESTMapper{}, map[string]func(){}, nil}
		for _, arg := range args {
			switch name, value, _ := strings.Cut(arg, "="); name {
			case "IdleTimeout":
				s.fleet.IdleTimeout, err = time.ParseDuration(value)
			case "MaxMappers":
				s.fleet.MaxMappers, err = strconv.Atoi(value)
			}
		}
	case "for":
		m := forKey(s.t, f.Fleet, key, f.server)
		known := m == f.mappers[key]
		f.mappers[key] = m
		return map[bool]string{true: "known", false: "new"}[known], nil
	case "use-of":
		_, err = f.mappers[key].RESTMapping(fooKind.GroupKind(), fooKind.Version)
	case "engage":
		m := f.mappers[args[2]]
		if m == nil {
			m = f.new(s.t)
			f.mappers[args[2]] = m
		}
		ctx, cancel := context.WithCancel(context.Background())
		f.leave[args[0]] = cancel
		if f.Engage(ctx, strings.Trim(args[1], "-"), m) != nil {
			return "failed", nil
		}
	case "leave":
		f.leave[args[0]]()
	case "expel":
		f.Remove(key)
	case "mapper":
		m, _ := f.For(key, nil, nil)
		for name, known := range f.mappers {
			if known == m {
				return name, nil
			}
		}
	case "keys", "running":
		told = strings.Join(slices.Sorted(maps.Keys(f.Status())), ", ")
		if told = cmp.Or(told, map[bool]string{true: "none", false: "-"}[len(f.Status()) == 0]); command == "running" {
			told += fmt.Sprintf("; %d running", f.refreshes()/10)
		}
	case "start-fleet":
		ctx, cancel := context.WithCancel(context.Background())
		returned := make(chan error)
		go func() { returned <- f.Start(ctx) }()
		f.stop = func() error { cancel(); return <-returned }
	case "stop-fleet":
		err = f.stop()
	}
	synctest.Wait()
	return told, err
}
