// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// replays are those to show, in order.
var replays = []string{"R1", "R2", "R2-reset", "R2-version", "R3", "R4", "R5-miss", "R5-reset"}

// outcome is what hack/e2e records of a replay, as far as it is shown.
type outcome struct {
	Replay, Title   string
	Fork, Healed    bool
	Tries, Requests int
	Millis          float64
}

// replay runs the sample controller, built on stock and on the column's tree,
// through the replays. hack/e2e takes the two programs for stock and fork, and
// fails if a replay does not heal on the fork. A column may well fail a replay, so
// only what hack/e2e has recorded counts.
func (b *bench) replay(ctx context.Context, c *Column) error {
	stock := b.columns[0]
	if c == stock {
		return nil // it runs beside each of the others
	}
	for link, built := range map[string]*Column{"heal-stock": stock, "heal-fork": c} {
		if err := os.Symlink(filepath.Join(built.dir, "heal"), filepath.Join(c.dir, link)); err != nil {
			return err
		}
	}
	results := filepath.Join(c.dir, "results")
	_, failed := b.command(ctx, "hack/e2e", []string{"KUBEBUILDER_ASSETS=" + b.assets, "FRESHMAPPER_E2E_PROGRAMS=" + c.dir, "FRESHMAPPER_E2E_RESULTS=" + results},
		"go", "test", "-count=1", "-timeout=10m", "-run=^TestHeal$", ".")
	if ctx.Err() != nil {
		return ctx.Err()
	}
	recorded, err := os.ReadFile(results)
	if err != nil {
		return errors.Join(fmt.Errorf("hack/e2e recorded nothing: %w", err), failed)
	}
	for lines := json.NewDecoder(bytes.NewReader(recorded)); lines.More(); {
		var o outcome
		if err := lines.Decode(&o); err != nil {
			return fmt.Errorf("read what hack/e2e recorded: %w", err)
		}
		if o.Fork {
			c.replays[o.Replay] = o
		} else {
			stock.replays[o.Replay] = o
		}
	}
	for _, name := range replays {
		if _, ok := c.replays[name]; !ok {
			return errors.Join(fmt.Errorf("hack/e2e recorded nothing of %s", name), failed)
		}
	}
	return nil
}
