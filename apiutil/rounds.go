// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// rounds make those who wait for kinds share what they ask the server: in a round the document is read once, and
// each question is asked once. For those who wait long there is a round each mostPoll.
type rounds struct {
	mu        sync.Mutex    // held for a moment only; guards the rest
	began     snapshot.Tick // the reads of the present round are younger
	at        time.Time     // when it began; zero: never
	questions map[question]*asked
}

// question is what is asked: whether a kind is served, or, without a kind, those of a version that are not known;
// or, live, the version's own path.
type question struct {
	schema.GroupVersionKind
	live bool
}

// asked is a question that was asked in the present round.
type asked struct {
	began snapshot.Tick
	at    time.Time // when its round began
	done  chan struct{}
	err   error // why it could not be answered, or nil; written before done is closed
}

// shared asks a question in the present round, or, if that is older than age, in the next. The reads of its answer
// began after the tick that it returns. It waits until ctx ends; the reads go on for others.
func (m *DynamicRESTMapper) shared(ctx context.Context, age time.Duration, q question, ask func(context.Context, snapshot.Tick) error) (*asked, error) {
	for _, name := range []*string{&q.Group, &q.Version, &q.Kind} {
		if len(*name) > mostName { // a round is kept, and must not keep the long names of a caller
			key := share.KeyOf("name", []byte(*name))
			*name = string(key[:])
		}
	}
	a := m.rounds.join(m.reloader.Now(), age, q, func(a *asked) {
		defer close(a.done)
		a.err = ask(context.WithoutCancel(ctx), a.began)
	})
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		return a, discovery.Cause(ctx)
	}
}

func (r *rounds) join(now snapshot.Tick, age time.Duration, q question, ask func(*asked)) *asked {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= age {
		r.began, r.at, r.questions = now, time.Now(), map[question]*asked{}
	}
	if r.questions[q] == nil {
		r.questions[q] = &asked{began: r.began, at: r.at, done: make(chan struct{})}
		go ask(r.questions[q])
	}
	return r.questions[q]
}

// due returns when to ask again: after a step of pollBackoff, or, when that is as long as it gets and all watches for
// API changes are open, twice as long.
func (m *DynamicRESTMapper) due(step time.Duration, since time.Time) <-chan time.Time {
	if step >= mostPoll && m.watching() {
		step *= 2
	}
	return time.After(step - time.Since(since))
}
