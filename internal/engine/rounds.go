// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/freshmapper/freshmapper/internal/discovery"
	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Rounds make callers that wait for kinds share what they ask the server: in a round the document is read
// once, and each question is asked once. For callers that wait long there is a round each MostPoll. The zero
// value is ready to use.
type Rounds struct {
	mu        sync.Mutex    // held for a moment only; guards the rest
	began     snapshot.Tick // the reads of the present round are younger
	at        time.Time     // when it began; zero: never
	questions map[Question]*Answer
}

// Question is what is asked: whether a kind is served, or, without a kind, those of a version that are not
// known; or, live, the version's own path.
type Question struct {
	schema.GroupVersionKind
	Live bool
}

// Answer is how a question of a round was answered.
type Answer struct {
	Began snapshot.Tick // the reads of the answer began after it
	At    time.Time     // when its round began

	done chan struct{}
	err  error // why it could not be answered, or nil; written before done is closed
}

// Ask asks a question in the present round, or, if that is older than age, in the next one, which begins at
// now. It waits until ctx ends; the reads go on for others.
func (r *Rounds) Ask(
	ctx context.Context, now snapshot.Tick, age time.Duration, q Question, ask func(context.Context, snapshot.Tick) error,
) (*Answer, error) {
	for _, name := range []*string{&q.Group, &q.Version, &q.Kind} {
		if len(*name) > mostName { // a round is kept, and must not keep the long names of a caller
			key := share.KeyOf("name", []byte(*name))
			*name = string(key[:])
		}
	}
	a := r.join(now, age, q, func(a *Answer) {
		defer close(a.done)
		a.err = ask(context.WithoutCancel(ctx), a.Began)
	})
	select {
	case <-a.done:
		return a, a.err
	case <-ctx.Done():
		return a, discovery.Cause(ctx)
	}
}

func (r *Rounds) join(now snapshot.Tick, age time.Duration, q Question, ask func(*Answer)) *Answer {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.at) >= age {
		r.began, r.at, r.questions = now, time.Now(), map[Question]*Answer{}
	}
	if r.questions[q] == nil {
		r.questions[q] = &Answer{Began: r.began, At: r.at, done: make(chan struct{})}
		go ask(r.questions[q])
	}
	return r.questions[q]
}

// mostName is how long a name of an API may be.
const mostName = 253

// PollBackoff returns the pauses after which a caller that waits asks the server by itself if nothing else
// does.
func PollBackoff() wait.Backoff {
	return wait.Backoff{Duration: time.Second, Factor: 2, Jitter: 0.1, Steps: 30, Cap: MostPoll}
}

// MostPoll is the longest of these pauses.
const MostPoll = 30 * time.Second
