// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

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
	text, err := gotool.Elsewhere(ctx, map[string][]byte{"go.mod": e.files["go.mod"].Data}, "mod", "edit", "-json")
	if err != nil {
		return nil, err
	}
	var mod struct {
		Require []struct{ Path, Version string }
	}
	if err := json.Unmarshal(text, &mod); err != nil {
		return nil, fmt.Errorf("read the go.mod of %s: %w", e.version, err)
	}
	var bom struct {
		Format   string `json:"bomFormat"`
		Spec     string `json:"specVersion"`
		Version  int    `json:"version"`
		Metadata struct {
			Time      time.Time `json:"timestamp"`
			Component component `json:"component"`
		} `json:"metadata"`
		Components []component `json:"components"`
	}
	bom.Format, bom.Spec, bom.Version = "CycloneDX", "1.5", 1
	bom.Metadata.Time, bom.Metadata.Component = e.time, module(o.module, e.tag)
	for _, r := range mod.Require {
		bom.Components = append(bom.Components, module(r.Path, r.Version))
	}
	return json.MarshalIndent(bom, "", "  ")
}
