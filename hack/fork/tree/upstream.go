// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/cli"
)

// Upstream reads controller-runtime's source from the module cache, as Folder
// finds it.
func Upstream(ctx context.Context, version string, sums []byte) (Files, error) {
	dir, err := Folder(ctx, version, sums)
	if err != nil {
		return nil, err
	}
	return Read(os.DirFS(dir))
}

// Folder is where the module cache has controller-runtime. It is downloaded first
// if need be. sums is the go.sum to check it against, nil to ask the checksum
// database: with the consumer's own go.sum a module that is in the cache needs no
// network. The error of a release that is not there names the newest of its line.
func Folder(ctx context.Context, version string, sums []byte) (string, error) {
	var module struct{ Dir, Error string }
	// In a module of its own: in the consumer's folder the go command would write to the
	// consumer's go.sum.
	mod := []byte("module freshmapper.invalid/download\n\ngo 1.23\n")
	err := cli.Elsewhere(ctx, mod, sums, &module, "mod", "download", "-json", Module+"@"+version)
	if module.Error != "" {
		err = fmt.Errorf("download %s", strings.Join(strings.Fields(module.Error), " ")) // the proxy's answer is in lines
		if minor := release.FindStringSubmatch(version); minor != nil {
			var newest struct{ Version string }
			asked := cli.Elsewhere(ctx, mod, nil, &newest, "list", "-m", "-json", Module+"@"+minor[1])
			if asked == nil && newest.Version != version {
				err = fmt.Errorf("controller-runtime %s is not to be had: the newest release of %s is %s: %w", version, minor[1], newest.Version, err)
			}
		}
	}
	return module.Dir, err
}
