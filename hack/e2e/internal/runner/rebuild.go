// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"os"
	"path/filepath"
)

// RebuildFork builds the fork's binary again, with build tags, for a program
// that has files for the fork only. It takes the copy that Build forked. Programs
// that somebody else has built are left as they are.
func (p *Programs) RebuildFork(ctx context.Context, name, tags string) error {
	if os.Getenv(programsEnv) != "" {
		return nil
	}
	forked := filepath.Join(filepath.Dir(p.Fork), name)
	_, err := command(ctx, forked, "go", "build", "-tags", tags, "-o", filepath.Join("..", filepath.Base(p.Fork)), ".")
	return err
}
