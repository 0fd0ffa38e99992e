// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

const mutantHistories = 60 // in each mode

// The checker has to accept a mapper that keeps the promises. The seeds are fixed:
// it is the checker that is tested.
func TestReference(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		for seed := range uint64(*histories) {
			h := record(t, seed, legacy, false, newReference(mutation{}))
			for _, v := range Check(h) {
				t.Errorf("%s: %s", h, v)
			}
		}
	}
}

// The checker has to catch these.
func TestMutants(t *testing.T) {
	tests := []struct {
		name  string
		make  Maker
		rules []Rule // each has to be found broken
	}{
		{"answers from 50 ms ago", remembering(50*time.Millisecond, newReference(mutation{})), []Rule{RuleVersion, RuleGroup, RuleTruth}},
		{"a reset does nothing", newReference(mutation{ignoresResets: true}), []Rule{RuleReset}},
		{"an error is no match", newReference(mutation{errorIsAbsence: true}), []Rule{RuleVersion, RuleGroup, RuleTruth}},
		{"an old document replaces what was read live", newReference(mutation{oldDocumentWins: true}), []Rule{RuleOutdated}},
		{"the document alone says no match", newReference(mutation{believesDocument: true}), []Rule{RuleGroup, RuleTruth}},
		{"absence is remembered", newReference(mutation{keepsAbsence: true}), []Rule{RuleVersion, RuleTruth}},
		{"the last version is taken for the first", newReference(mutation{lastVersion: true}), []Rule{RuleOrder}},
		{"what is known is read again", newReference(mutation{hitsNothing: true}), []Rule{RuleHit}},
		{"a document settles a reset of a group", newReference(mutation{documentSettles: true}), []Rule{RuleGroupReset}},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			broken, caught := brokenBy(t, test.make)
			t.Logf("caught in %d of %d histories: %v", caught, 2*mutantHistories, broken)
			for _, rule := range test.rules {
				if broken[rule] == 0 {
					t.Errorf("not found broken: %s", rule)
				}
			}
		})
	}
}

func brokenBy(t *testing.T, newMapper Maker) (broken map[Rule]int, caught int) {
	broken = map[Rule]int{}
	for _, legacy := range []bool{false, true} {
		for seed := range uint64(mutantHistories) {
			violations := Check(record(t, seed, legacy, false, newMapper))
			for _, v := range violations {
				broken[v.Rule]++
			}
			if len(violations) > 0 {
				caught++
			}
		}
	}
	return broken, caught
}

// The rules that no mutant breaks.
func TestOtherRules(t *testing.T) {
	o := &Op{Kind: OpMapping, Group: "apps", Versions: []string{"v1"}, Call: Stamp{2, 0}, Return: Stamp{9, 1}}
	h := &History{Ops: []*Op{o}, Worlds: []Change{{}}, Docs: []Change{{}}}
	tests := map[Rule]func(){
		RuleNeverServed: func() { o.Found = []Found{{Version: 1}} },
		RuleWrong:       func() { o.Found = []Found{{Version: 0}} },
		RuleError:       func() { o.Err = io.EOF },
		RulePanic:       func() { o.Err, o.Panicked = io.EOF, true },
	}
	for rule, breakIt := range tests {
		o.Found, o.Err, o.Panicked = nil, nil, false
		breakIt()
		if !slices.ContainsFunc(Check(h), func(v Violation) bool { return v.Rule == rule }) {
			t.Errorf("not found broken: %s", rule)
		}
	}
}

// remembering makes a mapper below which answers are repeated for a while.
func remembering(ttl time.Duration, newMapper Maker) Maker {
	return func(cfg *rest.Config, transport http.RoundTripper) (Mapper, error) {
		return newMapper(cfg, &memory{next: transport, ttl: ttl, answers: map[string]answer{}})
	}
}

type memory struct {
	next http.RoundTripper
	ttl  time.Duration

	mu      sync.Mutex
	answers map[string]answer
}

type answer struct {
	at   time.Time
	resp http.Response
	body []byte
}

func (m *memory) RoundTrip(req *http.Request) (*http.Response, error) {
	key := req.URL.Path + req.Header.Get("Accept")
	m.mu.Lock()
	old, ok := m.answers[key]
	m.mu.Unlock()
	if ok && time.Since(old.at) < m.ttl {
		return old.again(), nil
	}
	resp, err := m.next.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	fresh := answer{at: time.Now(), resp: *resp, body: body}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.answers[key] = fresh
	return fresh.again(), nil
}

func (a answer) again() *http.Response {
	resp := a.resp
	resp.Body = io.NopCloser(bytes.NewReader(a.body))
	return &resp
}
