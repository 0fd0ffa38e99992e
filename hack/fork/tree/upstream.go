// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/gotool"
)

// Upstream reads controller-runtime's source from the module cache, as Folder
// finds it.
func Upstream(ctx context.Context, version string, sums []byte) (Files, error) {
	dir, err := Folder(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	files, err := Read(os.DirFS(dir))
	if err != nil {
		return nil, fmt.Errorf("read %s %s from the module cache: %w", Module, version, err)
	}
	return files, nil
}

// Folder is where the module cache has controller-runtime. It is downloaded first
// if need be. sums is the go.sum to check it against, nil to ask the checksum
// database: with the consumer's own go.sum a module that is in the cache needs no
// network.
func Folder(ctx context.Context, version string, sums []byte) (string, error) {
	// In a module of its own: in the consumer's folder the go command would write to the
	// consumer's go.sum.
	files := map[string][]byte{"go.mod": []byte("module freshmapper.invalid/download\n\ngo 1.23\n"), "go.sum": sums}
	out, err := gotool.Elsewhere(ctx, files, "mod", "download", "-json", Module+"@"+version)
	var module struct{ Dir, Error string }
	if json.Unmarshal(out, &module) == nil && module.Error != "" {
		said := strings.Join(strings.Fields(module.Error), " ") // the proxy's answer is in lines
		return "", fmt.Errorf("download %s", said)
	}
	if err == nil && module.Dir == "" {
		err = fmt.Errorf("go mod download %s@%s names no folder", Module, version)
	}
	return module.Dir, err
}
