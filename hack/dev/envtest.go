// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/freshmapper/freshmapper/hack/dev/servers"
)

const envtestUsage = `usage: hack/envtest.sh latest             a server of Kubernetes 1.30 or newer
       hack/envtest.sh legacy             a server of Kubernetes 1.26 to 1.29
       hack/envtest.sh legacy-store DIR   makes DIR a setup-envtest store that has the
                                          legacy server as 1.28.0, and prints what to export

The first two print a folder with kube-apiserver and etcd: $KUBEBUILDER_ASSETS if
it fits, else what setup-envtest has stored, else what an earlier run has cached,
else a download by setup-envtest, else a build from source (minutes, once).

  FRESHMAPPER_CACHE              where to cache, default ~/.cache/freshmapper
  FRESHMAPPER_ENVTEST_OFFLINE=1  no download by setup-envtest; a build may still
                                 ask the Go module proxy for modules not yet cached
`

func envtest(ctx context.Context, c *checkout, args []string) error {
	finder, err := servers.New(c.root, c.say)
	if err != nil {
		return err
	}
	dir := ""
	switch words := strings.Join(args, " "); {
	case words == "latest":
		dir, err = finder.Find(ctx, servers.Latest)
	case words == "legacy":
		dir, err = finder.Find(ctx, servers.Legacy)
	case len(args) == 2 && args[0] == "legacy-store":
		env, err := finder.Store(ctx, args[1])
		for _, line := range env {
			name, value, _ := strings.Cut(line, "=")
			fmt.Fprintf(c.stdout, "export %s='%s'\n", name, strings.ReplaceAll(value, "'", `'\''`))
		}
		return err
	case words == "-h" || words == "--help":
		fmt.Fprint(c.stdout, envtestUsage)
		return nil
	default:
		fmt.Fprintf(c.stderr, "error: unexpected %q\n%s", words, envtestUsage)
		return errUsage
	}
	if err == nil {
		fmt.Fprintln(c.stdout, dir)
	}
	return err
}
