// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// A component is a module, in the words of CycloneDX.
type component struct {
	Type    string `json:"type"`
	Name    string `json:"name"`
	Version string `json:"version"`
	PURL    string `json:"purl"`
}

func module(name, version string) component {
	return component{"library", name, version, "pkg:golang/" + name + "@" + version}
}

// bill is the SBOM of an edition, as CycloneDX: upstream's release, whose advisories are those
// of its fork, too, and the modules that its go.mod requires. The same sources give the same
// bytes.
func (o options) bill(ctx context.Context, e *edition) ([]byte, error) {
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := cli.Elsewhere(ctx, e.files["go.mod"], nil, &mod, "mod", "edit", "-json"); err != nil {
		return nil, err
	}
	components := []component{module(tree.Module, e.version)}
	for _, r := range mod.Require {
		components = append(components, module(r.Path, r.Version))
	}
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"timestamp": e.time, "component": module(o.module, e.tag)},
		"components": components,
	}, "", "  ")
}
