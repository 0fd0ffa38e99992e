// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
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

// bill is the SBOM of an edition, as CycloneDX: the modules that its go.mod requires. The
// same sources give the same bytes.
func (o options) bill(ctx context.Context, e *edition) ([]byte, error) {
	text, err := gotool.Elsewhere(ctx, map[string][]byte{"go.mod": e.files["go.mod"]}, "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &mod); err != nil {
		return nil, fmt.Errorf("read the go.mod of %s: %w", e.version, err)
	}
	components := []component{}
	for _, r := range mod.Require {
		components = append(components, module(r.Path, r.Version))
	}
	return json.MarshalIndent(map[string]any{
		"bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1,
		"metadata":   map[string]any{"timestamp": e.time, "component": module(o.module, e.tag)},
		"components": components,
	}, "", "  ")
}
