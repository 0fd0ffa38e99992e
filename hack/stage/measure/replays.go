// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
)

const (
	heal    = "testdata/consumers/heal"
	program = "heal"
)

// replayNames are the replays to show, in order.
var replayNames = []string{"R1", "R2", "R2-reset", "R2-version", "R3", "R4", "R5-miss", "R5-reset"}

// outcome is what hack/e2e records of a replay, as far as it is shown.
type outcome struct {
	Replay   string  `json:"replay"`
	Title    string  `json:"title"`
	Fork     bool    `json:"fork"`
	Healed   bool    `json:"healed"`
	Tries    int     `json:"tries"`
	Requests int     `json:"requests"`
	Millis   float64 `json:"millis"`
}

// replays runs the sample controller, built on stock and on the column's tree,
// through the replays. hack/e2e takes them for stock and fork, and fails if a
// replay does not go as it should on a fork. That is what is to be found out
// here, so what counts is what it has recorded.
func (b *bench) replays(ctx context.Context, dir, assets string, column Column, to *figures) error {
	programs := filepath.Join(dir, "programs")
	if err := os.Mkdir(programs, 0o755); err != nil {
		return fmt.Errorf("collect the programs: %w", err)
	}
	for name, from := range map[string]string{"stock": filepath.Join(b.work, "0", program), "fork": filepath.Join(dir, program)} {
		if err := os.Symlink(from, filepath.Join(programs, program+"-"+name)); err != nil {
			return fmt.Errorf("collect the programs: %w", err)
		}
	}
	results := filepath.Join(dir, "results")
	_, failed := b.command(ctx, filepath.Join(b.root, "hack/e2e"), []string{"KUBEBUILDER_ASSETS=" + assets,
		"FRESHMAPPER_E2E_PROGRAMS=" + programs, "FRESHMAPPER_E2E_RESULTS=" + results},
		"go", "test", "-count=1", "-timeout=10m", "-run=^TestHeal$", ".")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	outcomes, err := readOutcomes(results)
	if err != nil {
		return errors.Join(err, failed)
	}
	for _, o := range outcomes {
		if o.Fork {
			to.replay(column.Name, o)
		} else {
			to.replay("stock", o)
		}
	}
	if missing := to.missing(column.Name); len(missing) > 0 {
		return fmt.Errorf("hack/e2e recorded nothing of %v: %w", missing, failed)
	}
	return nil
}

func (b *bench) buildHeal(ctx context.Context, dir string, column Column) error {
	mod, err := b.module(ctx, dir, heal, column)
	if err != nil {
		return err
	}
	_, err = b.command(ctx, filepath.Join(b.root, heal), nil, "go", "build", "-modfile="+mod, "-mod=mod", "-o", filepath.Join(dir, program), ".")
	return err
}

// readOutcomes reads one object a line.
func readOutcomes(name string) ([]outcome, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("the replays recorded nothing: %w", err)
	}
	var outcomes []outcome
	for lines := json.NewDecoder(bytes.NewReader(data)); ; {
		var o outcome
		switch err := lines.Decode(&o); {
		case errors.Is(err, io.EOF):
			return outcomes, nil
		case err != nil:
			return nil, fmt.Errorf("read what the replays recorded: %w", err)
		}
		if slices.Contains(replayNames, o.Replay) {
			outcomes = append(outcomes, o)
		}
	}
}
