// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package engine

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

var (
	widgets = Question{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}}
	gadgets = Question{GroupVersionKind: schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Gadget"}}
)

// pollsTest are polls whose questions are counted. Each question gets a higher sequence number as the last one.
type pollsTest struct {
	Polls
	t     *testing.T
	now   snapshot.Seq
	asked int
}

// ask asks, and returns after which sequence number the reads of the answer began.
func (p *pollsTest) ask(age time.Duration, q Question) snapshot.Seq {
	p.t.Helper()
	p.now++
	a, err := p.Ask(context.Background(), p.now, age, q, func(context.Context, snapshot.Seq) error {
		p.asked++
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return a.Began
}

// asks fails the test unless questions were asked so many times.
func (p *pollsTest) asks(want int, what string) {
	p.t.Helper()
	if p.asked != want {
		p.t.Errorf("%s: the server was asked %d times, want %d", what, p.asked, want)
	}
}

func inPolls(t *testing.T, test func(p *pollsTest)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(&pollsTest{t: t}) })
}

// A caller takes the answer of others that is young enough, and asks anew if it is older than the caller allows.
func TestAnswersAreSharedForAnAge(t *testing.T) {
	inPolls(t, func(p *pollsTest) {
		p.ask(30*time.Second, widgets)
		time.Sleep(20 * time.Second)

		p.ask(30*time.Second, widgets)
		p.asks(1, "an answer of 20s for a caller that allows 30s")

		p.ask(10*time.Second, widgets)
		p.asks(2, "an answer of 20s for a caller that allows 10s")
	})
}

// What one caller asks anew leaves the answers to other questions as they are.
func TestAnswersOutliveALaterPoll(t *testing.T) {
	inPolls(t, func(p *pollsTest) {
		p.ask(30*time.Second, widgets)
		time.Sleep(10 * time.Second)
		p.ask(time.Second, gadgets)

		p.ask(30*time.Second, widgets)
		p.asks(2, "an answer of 10s, after another question was asked")
	})
}

// Questions of one poll rest on reads that began after the same moment, so that one read of the document does for all.
func TestQuestionsOfOnePollHaveOneBegin(t *testing.T) {
	inPolls(t, func(p *pollsTest) {
		first := p.ask(30*time.Second, widgets)
		time.Sleep(20 * time.Second)
		if second := p.ask(30*time.Second, gadgets); second != first {
			t.Errorf("the reads of the second question begin after %d, want %d as for the first", second, first)
		}

		time.Sleep(20 * time.Second)
		if third := p.ask(30*time.Second, widgets); third <= first {
			t.Errorf("40s later the reads begin after %d, want later than %d", third, first)
		}
	})
}

// What is too old for everybody takes no memory, nor do the long names of a caller.
func TestAnswersAreForgotten(t *testing.T) {
	inPolls(t, func(p *pollsTest) {
		long := widgets
		long.Kind = strings.Repeat("x", 1<<20)
		p.ask(MaxPollPause, long)
		for q := range p.answers {
			if len(q.Kind) > maxName {
				t.Errorf("a name of %d bytes is kept", len(q.Kind))
			}
		}

		time.Sleep(MaxPollPause)
		p.ask(MaxPollPause, widgets)
		if len(p.answers) != 1 {
			t.Errorf("%d answers are kept, want the new one", len(p.answers))
		}
	})
}

// A caller that stops waiting leaves the question to others.
func TestQuestionOutlivesItsCaller(t *testing.T) {
	inPolls(t, func(p *pollsTest) {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		slow := func(ctx context.Context, _ snapshot.Seq) error {
			time.Sleep(time.Minute)
			return ctx.Err()
		}
		if _, err := p.Ask(ctx, 1, time.Hour, widgets, slow); err == nil {
			t.Error("a caller whose context ends gets no error")
		}

		p.ask(time.Hour, widgets) // it fails the test if the question has ended with the first caller
		p.asks(0, "a question that goes on")
	})
}
