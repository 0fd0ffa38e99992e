// SPDX-License-Identifier: Apache-2.0

package servers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// builder downloads or builds servers in a folder on the file system of the cache,
// so that what is complete moves there in one step.
type builder struct {
	*Finder
	mode      Mode
	pin, temp string
}

// download returns the folder of the newest patch of the pin's minor version that
// setup-envtest offers. It downloads into temp: in the store that it shares with
// other projects an interrupted run leaves a broken version.
func (b *builder) download(ctx context.Context) (string, error) {
	if os.Getenv("FRESHMAPPER_ENVTEST_OFFLINE") != "" {
		return "", errors.New("no download: FRESHMAPPER_ENVTEST_OFFLINE is set")
	}
	fetched, err := b.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("setup-envtest has nothing to download, or there is no network: %w", err)
	}
	if err := os.Chmod(fetched, 0o755); err != nil { // it does not move otherwise
		return "", err
	}
	return b.install(fetched, filepath.Join(b.downloads(), filepath.Base(fetched)))
}

// install moves a folder into the cache.
func (b *builder) install(from, to string) (string, error) {
	err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), proc.Remove(to))
	if err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		return "", fmt.Errorf("put API servers into the cache: %w", err)
	}
	return to, nil
}

// fetch returns a folder in temp.
func (b *builder) fetch(ctx context.Context) (string, error) {
	minor := b.pin[:strings.LastIndex(b.pin, ".")] + ".x"
	b.say("asking setup-envtest for Kubernetes %s", minor)
	if err := online(ctx); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	tool, to := filepath.Join(b.temp, "setup-envtest"), filepath.Join(b.temp, "download")
	var log bytes.Buffer
	if err := b.compile(ctx, "setup", "sigs.k8s.io/controller-runtime/tools/setup-envtest", tool, "-s -w", &log); err != nil {
		return "", err
	}
	if _, err := proc.Output(ctx, "", []string{"TMPDIR=" + b.temp}, tool, "--bin-dir", to, "--use-env=false", "use", "-p", "path", minor); err != nil {
		return "", err
	}
	dir := newestOf(ctx, filepath.Join(to, "k8s"), b.mode)
	if dir == "" {
		return "", errors.New("what it downloaded does not fit")
	}
	return dir, nil
}

// online checks that the host of setup-envtest's index answers, unless requests go
// through a proxy. Without this check, an offline machine would compile
// setup-envtest, which takes a minute if Go's build cache is empty, only to learn
// that there is no network. In a network that loses packets it would take minutes.
func online(ctx context.Context) error {
	if os.Getenv("HTTPS_PROXY")+os.Getenv("https_proxy") != "" {
		return nil
	}
	dialer := net.Dialer{Timeout: 3 * time.Second}
	conn, err := dialer.DialContext(ctx, "tcp", "raw.githubusercontent.com:443")
	if err != nil {
		return err
	}
	return conn.Close()
}

// build returns the folder of the pinned versions, built from source.
func (b *builder) build(ctx context.Context) (string, error) {
	etcd, err := b.pinned("etcd", "go.etcd.io/etcd/server/v3")
	if err != nil {
		return "", err
	}
	out, target, begun := filepath.Join(b.temp, "out"), b.built(b.pin), time.Now()
	log, err := os.Create(target + ".log")
	if err == nil {
		err = os.Mkdir(out, 0o755)
	}
	if err != nil {
		return "", fmt.Errorf("prepare the build of API servers: %w", err)
	}
	defer log.Close() //nolint:errcheck // it is for a reader, who has the error
	b.say("building kube-apiserver %s and etcd %s from source: minutes, but only once (log: %s)", b.pin, etcd, log.Name())
	err = b.compile(ctx, b.mode.Name, "k8s.io/kubernetes/cmd/kube-apiserver", filepath.Join(out, "kube-apiserver"), versionFlags(b.pin), log)
	if err == nil {
		err = b.compile(ctx, "etcd", ".", filepath.Join(out, "etcd"), "-s -w", log)
	}
	if err != nil {
		return "", fmt.Errorf("build the %s API server: %w: see %s", b.mode.Name, err, log.Name())
	}
	if err := placeholder(filepath.Join(out, "kubectl")); err != nil {
		return "", err
	}
	if err := fits(ctx, out, b.mode); err != nil {
		return "", fmt.Errorf("what was built from hack/envtest/%s is of no use: %w", b.mode.Name, err)
	}
	b.say("built %s in %.0f s", target, time.Since(begun).Seconds())
	return b.install(out, target)
}

// compile builds a package with the versions that hack/envtest/folder pins,
// whatever the caller's Go settings.
func (b *builder) compile(ctx context.Context, folder, pkg, to, ldflags string, log io.Writer) error {
	return proc.Command{
		Dir:    filepath.Join(b.root, "hack", "envtest", folder),
		Env:    []string{"CGO_ENABLED=0", "GOOS=" + runtime.GOOS, "GOARCH=" + runtime.GOARCH, "GOTMPDIR=" + b.temp},
		Args:   []string{"go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", ldflags, "-o", to, pkg},
		Stdout: log, Stderr: log,
	}.Run(ctx)
}

// versionFlags make the server report the version that it was built from.
func versionFlags(version string) string {
	const names = "k8s.io/component-base/version"
	numbers := strings.SplitN(version, ".", 3)
	return fmt.Sprintf("-s -w -X %s.gitVersion=v%s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", names, version, numbers[0], numbers[1])
}
