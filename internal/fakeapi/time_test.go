// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package fakeapi

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(sample()...)
		s.SetLatency(300 * time.Millisecond)
		start := time.Now()
		if r := inMemoryOrigin(s).get(t, "/apis", plainJSON, ""); r.Code != 200 {
			t.Errorf("%+v", r)
		}
		if took := time.Since(start); took != 300*time.Millisecond {
			t.Errorf("took %v", took)
		}

		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		defer cancel()
		wantError(t, inMemoryOrigin(s).getContext(ctx, t, "/apis", plainJSON, ""), context.DeadlineExceeded)
		if got := s.Requests()[1].String(); got != "GET /apis  no answer" {
			t.Errorf("listed as %q", got)
		}
	})
}

func TestAnswersAreOfTheTimeOfArrival(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New()
		s.SetLatency(time.Second)
		answers := make(chan result, 1)
		go func() { answers <- inMemoryOrigin(s).get(t, "/apis/example.com", plainJSON, "") }()
		synctest.Wait()
		if got := s.Requests()[0].String(); got != "GET /apis/example.com  no answer" {
			t.Errorf("listed as %q", got)
		}
		s.SetGroups(sample()...)
		if first := <-answers; first.Code != 404 {
			t.Errorf("what was added later is in the answer: %+v", first)
		}
		if next := inMemoryOrigin(s).get(t, "/apis/example.com", plainJSON, ""); next.Code != 200 {
			t.Errorf("the next answer: %+v", next)
		}
	})
}

func TestSlowDrip(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := New(Group{Versions: []Version{{Name: "v1"}}})
		s.SetFault(All(), SlowDrip(time.Second))
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second+time.Millisecond)
		defer cancel()
		got := inMemoryOrigin(s).getContext(ctx, t, "/api/v1", plainJSON, "")
		wantError(t, got, context.DeadlineExceeded)
		const document = `{"kind":"APIResourceList","groupVersion":"v1","resources":[]}` + "\n"
		if len(got.Body) != 100 || got.Body[:len(document)] != document {
			t.Errorf("%d bytes: %q", len(got.Body), got.Body)
		}
	})
}
