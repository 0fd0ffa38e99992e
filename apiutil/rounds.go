// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// rounds make those who wait for kinds share what they ask the server. In a round the document is read once, if it is
// needed, and each question is asked once. A round begins when somebody is due whose last question was asked
// before the present one, so for those who wait long there is one each mostPoll.
type rounds struct {
	mu  sync.Mutex // held for a moment only
	now *round     // nil: none yet
}

// round is what was asked since it began.
type round struct {
	began     snapshot.Tick
	at        time.Time
	questions map[question]*asked // rounds.mu guards it
}

// question is what is asked: whether a kind is served, or, without a kind, those of a version that are not known;
// or, live, the version's own path.
type question struct {
	schema.GroupVersionKind
	live bool
}

// asked is a question that was asked.
type asked struct {
	done chan struct{}
	err  error // why it could not be answered, or nil; written before done is closed
}

// shared asks a question in the present round, or, if that is older than age, in the next. It returns the tick after which
// the reads of the round began. It waits for the answer until ctx ends; the reads go on by themselves, for as long
// as RequestTimeout allows.
func (m *DynamicRESTMapper) shared(ctx context.Context, age time.Duration, q question, ask func(context.Context, snapshot.Tick) error) (snapshot.Tick, error) {
	m.rounds.mu.Lock()
	r := m.rounds.now
	if r == nil || time.Since(r.at) >= age {
		r = &round{began: m.reloader.Now(), at: time.Now(), questions: map[question]*asked{}}
		m.rounds.now = r
	}
	a := r.questions[q]
	if a == nil {
		a = &asked{done: make(chan struct{})}
		r.questions[q] = a
		go func() {
			defer close(a.done)
			a.err = ask(context.WithoutCancel(ctx), r.began)
		}()
	}
	m.rounds.mu.Unlock()
	select {
	case <-a.done:
		return r.began, a.err
	case <-ctx.Done():
		return r.began, discovery.Cause(ctx)
	}
}

// due returns when to ask again: after a step of pollBackoff, or, when that is as long as it gets and all watches for
// API changes are open, twice as long.
func (m *DynamicRESTMapper) due(step time.Duration) <-chan time.Time {
	if step >= mostPoll && m.watching() {
		step *= 2
	}
	return time.After(step)
}
