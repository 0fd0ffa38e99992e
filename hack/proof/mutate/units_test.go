// SPDX-License-Identifier: Apache-2.0

package mutate

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// tiny has a place for every kind of change, and prints what happens.
const tiny = `// A header stays.

package main

import "fmt"

func compare(a, b int) bool { return a < b }

func both(a, b bool) bool { return a && b }

func early(n int) string {
	if n > 1 {
		fmt.Print("big ")
		return "returned"
	}
	return "passed"
}

func order() {
	fmt.Print("one ")
	fmt.Print("two ")
}

func most(a, b int) int { return max(a, b) }

func rest(all []int) []int { return all[1:] }

func known() bool { return true }

func choose(n int) string {
	switch {
	case n == 7:
		return "seven"
	}
	return "other"
}

func main() {
	fmt.Println(compare(1, 1), compare(1, 2), both(true, false), early(1), early(2))
	order()
	fmt.Println(most(1, 2), rest([]int{1, 2, 3}), known(), choose(7), choose(8))
}
`

const (
	firstLine = "big false true false passed returned\n"
	lastLine  = "2 [2 3] true seven other\n"
)

// Each kind of change does what its text says, and nothing while it is not in force.
func TestChanges(t *testing.T) {
	want := map[string]string{
		"compare: a < b ⇒ <=":                                     "big true true false passed returned\none two " + lastLine,
		"both: a && b ⇒ ||":                                       "big false true true passed returned\none two " + lastLine,
		"both: a && b ⇒ a":                                        "big false true true passed returned\none two " + lastLine,
		"both: a && b ⇒ b":                                        firstLine + "one two " + lastLine,
		"early: if n > 1 ⇒ not":                                   "big false true false returned passed\none two " + lastLine,
		"early: if n > 1 ⇒ true":                                  "big big false true false returned returned\none two " + lastLine,
		"early: if n > 1 ⇒ false":                                 "false true false passed passed\none two " + lastLine,
		"early: n > 1 ⇒ >=":                                       "big big false true false returned returned\none two " + lastLine,
		"early: n > 1 ⇒ n + 1":                                    "big big false true false returned returned\none two " + lastLine,
		`early: fmt.Print("big ") ⇒ nothing`:                      "false true false passed returned\none two " + lastLine,
		`early: if n > 1: return "returned" ⇒ nothing`:            "big false true false passed passed\none two " + lastLine,
		`order: fmt.Print("one ") ⇒ nothing`:                      firstLine + "two " + lastLine,
		`order: fmt.Print("one "); fmt.Print("two ") ⇒ exchanged`: firstLine + "two one " + lastLine,
		"most: max(a, b) ⇒ min":                                   firstLine + "one two 1 [2 3] true seven other\n",
		"rest: all[1:] ⇒ 1 + 1":                                   firstLine + "one two 2 [3] true seven other\n",
		"known: true exchanged":                                   firstLine + "one two 2 [2 3] false seven other\n",
		"choose: case n == 7 ⇒ not":                               firstLine + "one two 2 [2 3] true other seven\n",
		"choose: n == 7 ⇒ n + 1":                                  firstLine + "one two 2 [2 3] true other other\n",
		"choose: n == 7 ⇒ !=":                                     firstLine + "one two 2 [2 3] true other seven\n",
	}
	binary, changes := buildTiny(t)
	if got := output(t, binary, 0); got != firstLine+"one two "+lastLine {
		t.Errorf("without a change: %s", got)
	}
	kinds := map[string]bool{}
	for _, c := range changes {
		text := strings.TrimPrefix(c.key(), ". ")
		expected, ok := want[text]
		if !ok {
			continue
		}
		kinds[c.kind] = true
		delete(want, text)
		if got := output(t, binary, c.id); got != expected {
			t.Errorf("%s:\n got %s\nwant %s", text, got, expected)
		}
	}
	for text := range want {
		t.Errorf("no such change: %s", text)
	}
	for _, kind := range []string{
		kindNegated, kindConstant, kindCompared, kindLogic, kindOperand, kindDropped, kindReturn, kindSwapped, kindOffByOne, kindBoolean, kindExtremum,
	} {
		if !kinds[kind] {
			t.Errorf("nothing tries: %s", kind)
		}
	}
}

// buildTiny builds tiny with all changes in it, and leaves its file as it is.
func buildTiny(t *testing.T) (binary string, changes []*change) {
	t.Helper()
	root, dir := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{"go.mod": "module tiny\n\ngo 1.26\n", "tiny.go": tiny} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	changes = find(t, root, "*.go")
	file := overlay(t, root, dir, changes)
	binary = filepath.Join(dir, "tiny")
	cmd := exec.Command("go", "build", "-overlay", file, "-o", binary, ".")
	cmd.Dir, cmd.Env = root, append(os.Environ(), "GOWORK=off")
	if output, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, output)
	}
	if text, err := os.ReadFile(filepath.Join(root, "tiny.go")); err != nil || string(text) != tiny {
		t.Errorf("the file was changed: %v", err)
	}
	return binary, changes
}

func output(t *testing.T, binary string, id int) string {
	t.Helper()
	cmd := exec.Command(binary)
	cmd.Env = append(os.Environ(), "MUTANT="+strconv.Itoa(id))
	text, err := cmd.Output()
	if err != nil {
		t.Fatalf("change %d: %v", id, err)
	}
	return string(text)
}

// A choice is spread over all changes, is the same for the same seed, and changes
// little if the code changes somewhere.
func TestChoose(t *testing.T) {
	var all []*change
	for i := range 1000 {
		all = append(all, &change{file: "a.go", function: "f", text: strconv.Itoa(i)})
	}
	chosen := choose(all, 100, 3)
	early := 0
	for _, c := range chosen {
		if slices.Index(all, c) < 500 {
			early++
		}
	}
	if len(chosen) != 100 || early < 35 || early > 65 {
		t.Errorf("%d are chosen, %d of the first half", len(chosen), early)
	}
	if !slices.Equal(chosen, choose(all, 100, 3)) || slices.Equal(chosen, choose(all, 100, 4)) {
		t.Error("the choice does not depend on the seed alone")
	}
	same := 0
	for _, c := range choose(slices.Concat(all[:300], all[310:]), 100, 3) {
		if slices.Contains(chosen, c) {
			same++
		}
	}
	if same < 90 {
		t.Errorf("without 10 of 1,000 changes only %d of the 100 chosen are the same", same)
	}
}

// An explanation is of a change that can be made.
func TestStaleExplanation(t *testing.T) {
	file := filepath.Join(t.TempDir(), "equivalent.json")
	if err := os.WriteFile(file, []byte(`{"internal/a f: x < y ⇒ <=": "why"}`), 0o644); err != nil {
		t.Fatal(err)
	}
	made := &change{file: "internal/a/a.go", function: "f", text: "x < y ⇒ <="}
	if known, err := readEquivalents(file, []*change{made}); err != nil || known[made.key()] != "why" {
		t.Errorf("%v, %v", known, err)
	}
	if _, err := readEquivalents(file, []*change{{file: "internal/a/b.go", function: "f", text: "x > y ⇒ >="}}); err == nil {
		t.Error("a stale explanation is no error")
	}
}

// The explanations are of the code as it is.
func TestExplanations(t *testing.T) {
	if _, err := readEquivalents("equivalent.json", find(t, "../../..", mutated...)); err != nil {
		t.Error(err)
	}
}

// What is not caught needs an explanation, and what is caught must have none.
func TestSummary(t *testing.T) {
	at := func(name string) *change { return &change{function: name} }
	found := results{
		{at("caught"), "", "s", "TestA"}, {change: at("explained"), why: "why"}, {change: at("survived")}, {at("wrong"), "why", "s", "TestB"},
	}
	if n := found.countAll(); n != [3]int{2, 1, 1} {
		t.Errorf("%d caught, explained and survived; want 2, 1 and 1", n)
	}
	err := found.err()
	for _, want := range []string{"survived", "wrong"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error says nothing of %q: %v", want, err)
		}
	}
	if err := found[:2].err(); err != nil {
		t.Error(err)
	}
	page := found.page("mutate", 10, time.Minute).String()
	for _, want := range []string{"| s | 2 |", "| 4 | 2 | 1 | 1 |", "- `. explained: `: why", "## What no test catches"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %q:\n%s", want, page)
		}
	}
}

// The tests that failed, or were running, are found in what go test prints.
func TestFailedTests(t *testing.T) {
	for text, want := range map[string]string{
		"--- FAIL: TestA (0.1s)\n    --- FAIL: TestA/b (0.1s)\nFAIL\n":                                        "TestA",
		"panic: test timed out after 1s\n\trunning tests:\n\t\tTestB (1s)\n\t\tTestC/x (0.5s)\n\ngoroutine 1": "TestB TestC",
		"signal: killed": "",
	} {
		if got := strings.Join(failedTests(text), " "); got != want {
			t.Errorf("%q: %s", text, got)
		}
	}
}
