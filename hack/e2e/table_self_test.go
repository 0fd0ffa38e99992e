// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const twoResults = `{"stock":{"program":"heal","replay":"R1","title":"a story","build":"stock v1","tries":5,"requests":5,"millis":1003,"expected":true,
		"steps":[{"seconds":0,"what":"CRD comes"},{"seconds":0.5,"what":"look up","outcome":"no match","requests":5}]},
	"fork":{"program":"heal","replay":"R1","title":"a story","build":"fork v1","fork":true,"healed":true,"tries":1,"requests":2,"millis":4.2,"expected":true,
		"steps":[{"seconds":0,"what":"CRD comes"},{"seconds":0.5,"what":"look up","outcome":"v2","ok":true,"requests":2}]}}`

func tableOf(t *testing.T, results string, color bool) (string, error) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "results")
	if err := os.WriteFile(name, []byte(results), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	err := printer{out: &out, color: color}.print(name)
	return out.String(), err
}

func TestTable(t *testing.T) {
	got, err := tableOf(t, twoResults, false)
	if err != nil {
		t.Fatal(err)
	}
	want := `R1           a story
       s                        stock v1                               fork v1
    0.00 CRD comes
    0.50 look up                ✗ no match · 5 requests                ✓ v2 · 2 requests

time to heal stock v1                               fork v1                                as expected
R1           never: 5 tries, 5 requests, 1003 ms    4.2 ms, 2 requests                     yes
`
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if colored, _ := tableOf(t, twoResults, true); !strings.Contains(colored, "\x1b[31m✗ no match") {
		t.Errorf("no red in\n%q", colored)
	}
}

// Replays of programs that ran at the same time are together again.
func TestTableByProgram(t *testing.T) {
	of := func(program, replay string) string {
		return strings.NewReplacer(`"program":"heal","replay":"R1"`, `"program":"`+program+`","replay":"`+replay+`"`).Replace(twoResults)
	}
	got, err := tableOf(t, of("plain", "S1")+of("lazy", "L1")+of("plain", "S2")+of("lazy", "L2"), false)
	if err != nil {
		t.Fatal(err)
	}
	_, summary, _ := strings.Cut(got, "time to heal")
	at := -1
	for _, replay := range []string{"L1", "L2", "S1", "S2"} {
		next := strings.Index(summary, "\n"+replay+" ")
		if next <= at {
			t.Errorf("%s is not in its place in\n%s", replay, summary)
		}
		at = next
	}
}

func TestTableFails(t *testing.T) {
	stock, fork, _ := strings.Cut(twoResults, ",\n\t\"fork\"")
	for written, want := range map[string]string{
		"":                        "no results",
		stock + "}":               "not every replay",
		`{"fork"` + fork:          "not every replay",
		twoResults + "{":          "result 2",
		twoResults + "no results": "result 2",
		strings.Replace(twoResults, `"expected":true`, `"expected":false`, 1): "not every replay",
	} {
		if _, err := tableOf(t, written, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got error %v, want %q", err, want)
		}
	}
}
