// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"maps"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Polls lets callers that wait for kinds share what they ask the server. Calls of the reloader share a read only until
// it begins; nothing is kept of a version that is not served, so a hundred callers that wait for one would read it a
// hundred times. Here a caller says how old an answer may be.
//
// What is asked at about the same time belongs to one poll, whose reads all began after the same moment. So the
// discovery document is read once for all questions of a poll. An answer is as old as its poll. The zero value is
// ready to use.
type Polls struct {
	mu      sync.Mutex // held for a moment only; guards the rest
	latest  poll
	answers map[Question]*Answer // the latest one to each question
}

// poll is the moment after which its reads began.
type poll struct {
	Began snapshot.Seq // the reads of its answers began later
	At    time.Time    // zero: never
}

// Question is what is asked: whether a kind is served, or, without a kind, those of a version that are not known; or,
// live, the version's own path. The zero Question is about the discovery document.
type Question struct {
	schema.GroupVersionKind
	Live bool
}

// Answer is how a question was answered.
type Answer struct {
	poll

	done chan struct{}
	err  error // why it could not be answered, or nil; written before done is closed
}

// Ask returns an answer that is no older than age: that of others, or a new one, for which it calls ask. now is the
// last sequence number. Ask waits until ctx ends; the reads go on for others.
func (p *Polls) Ask(
	ctx context.Context, now snapshot.Seq, age time.Duration, q Question, ask func(context.Context, snapshot.Seq) error,
) (*Answer, error) {
	a, isNew := p.answer(now, age, q.bounded())
	if isNew {
		go func() {
			defer close(a.done)
			a.err = ask(context.WithoutCancel(ctx), a.Began)
		}()
	}
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		return a, discovery.Cause(ctx)
	}
}

// answer returns the latest answer to a question, or a new one if that is older than age.
func (p *Polls) answer(now snapshot.Seq, age time.Duration, q Question) (a *Answer, isNew bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a = p.answers[q]
	if a != nil && time.Since(a.At) < age {
		return a, false
	}
	if time.Since(p.latest.At) >= age {
		p.latest = poll{Began: now, At: time.Now()}
		p.forget()
	}
	a = &Answer{poll: p.latest, done: make(chan struct{})}
	if p.answers == nil {
		p.answers = map[Question]*Answer{}
	}
	p.answers[q] = a
	return a, true
}

// forget forgets answers that are too old for everybody. Callers ask for what they wait for, so there are never many
// more answers than callers. mu is held.
func (p *Polls) forget() {
	maps.DeleteFunc(p.answers, func(_ Question, a *Answer) bool { return time.Since(a.At) >= MaxPollPause })
}

// maxName is how long a name of an API may be.
const maxName = 253

// bounded returns a question whose names are not too long to be kept: a long one is replaced by its hash.
func (q Question) bounded() Question {
	for _, name := range []*string{&q.Group, &q.Version, &q.Kind} {
		if len(*name) > maxName {
			key := share.KeyOf("name", []byte(*name))
			*name = string(key[:])
		}
	}
	return q
}

// PollBackoff returns the pauses after which a caller that waits asks the server by itself if nothing else does.
func PollBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 30, Cap: MaxPollPause}
}

// MaxPollPause is the longest of these pauses.
const MaxPollPause = 30 * time.Second
