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
func measured(ctx context.Context, o options, ours fs.FS, progress io.Writer) error {
	upstream, err := tree.Upstream(ctx, o.base, nil)
	if err != nil {
		return err
	}
	patches, err := small.Changes(upstream)
	if err != nil {
		return err
	}
	var names []string
	for i, patch := range small.Patches() {
		names = append(names, fmt.Sprintf("(%c) %s", 'a'+i, patch.Name))
	}
	fork, err := tree.Generate(o.base, maps.Clone(upstream), ours)
	if err != nil {
		return err
	}
	root, err := os.Getwd()
	if err != nil {
		return err
	}
	page, err := measure.Run(ctx, root, measure.Columns(upstream, patches, names, fork), progress)
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
		return errors.New(name + " has no place for the table: it is between two comments that say MEASURED")
	}
	return os.WriteFile(name, []byte(before+begin+"\n"+page+"\n"+end+after), 0o644)
}
