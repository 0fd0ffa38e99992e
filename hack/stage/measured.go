// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/stage/measure"
	"github.com/freshmapper/freshmapper/hack/stage/small"
)

// proposal is where the table goes, below the root of a checkout.
const (
	proposal = "hack/stage/PROPOSAL.md"
	begin    = "<!-- MEASURED: by hack/stage -measure -->\n"
	end      = "<!-- END MEASURED -->\n"
)

// measured measures what each patch buys, and writes it into the proposal.
func measured(ctx context.Context, base string, ours fs.FS, progress io.Writer) error {
	upstream, err := tree.Upstream(ctx, base, nil)
	if err != nil {
		return err
	}
	patches, err := small.Changes(upstream)
	if err != nil {
		return err
	}
	columns := []*measure.Column{{Name: "stock"}}
	for i, patch := range patches {
		columns = append(columns, &measure.Column{Name: fmt.Sprintf("(%c) %s", 'a'+i, small.Patches()[i].Name), Files: patch.Files})
	}
	fork, err := tree.Generate(base, maps.Clone(upstream), ours)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	page, err := measure.Run(ctx, root, append(columns, &measure.Column{Name: "full fork", Files: fork}), progress)
	if err != nil {
		return err
	}
	return replaceTable(proposal, page)
}

// replaceTable puts a page between the marks of a file.
func replaceTable(name, page string) error {
	data, err := os.ReadFile(name)
	if err != nil {
		return fmt.Errorf("write the table: %w", err)
	}
	before, rest, begins := strings.Cut(string(data), begin)
	_, after, ends := strings.Cut(rest, end)
	if !begins || !ends {
		return errors.New(name + " has no place for the table: put back the two comments that say MEASURED")
	}
	return os.WriteFile(name, []byte(before+begin+"\n"+page+"\n"+end+after), 0o644)
}
