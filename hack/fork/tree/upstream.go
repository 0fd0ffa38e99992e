// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

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
//
// The download runs in a module of its own, because in the consumer's folder
// the go command would write to the consumer's go.sum.
func Folder(ctx context.Context, version string, sums []byte) (string, error) {
	dir, err := os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return "", fmt.Errorf("make a folder to download in: %w", err)
	}
	defer os.RemoveAll(dir)
	for name, data := range map[string][]byte{
		"go.mod": []byte("module freshmapper.invalid/download\n\ngo 1.23\n"),
		"go.sum": sums,
	} {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			return "", fmt.Errorf("prepare the download of %s: %w", Module, err)
		}
	}
	out, err := gotool.Run(ctx, dir, []string{"GOWORK=off", "GOFLAGS=-mod=mod"}, "mod", "download", "-json", Module+"@"+version)
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

// Released is when a version of controller-runtime was released.
func Released(ctx context.Context, version string) (time.Time, error) {
	dir, err := os.MkdirTemp("", "freshmapper-")
	if err != nil {
		return time.Time{}, fmt.Errorf("make a folder to run the go command in: %w", err)
	}
	defer os.RemoveAll(dir)
	out, err := gotool.Run(ctx, dir, []string{"GOWORK=off"}, "list", "-m", "-json", Module+"@"+version)
	if err != nil {
		return time.Time{}, err
	}
	var module struct{ Time time.Time }
	if err := json.Unmarshal(out, &module); err != nil || module.Time.IsZero() {
		return time.Time{}, fmt.Errorf("go list -m %s@%s names no time of release", Module, version)
	}
	return module.Time.UTC(), nil
}
