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
	"regexp"
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

// newBuilder also clears away what a killed process has left: only the holder of
// the lock has a folder there.
func (f *Finder) newBuilder(mode Mode, pin string) (*builder, error) {
	left, _ := filepath.Glob(filepath.Join(f.cache, ".tmp.*")) // the pattern is a good one
	for _, dir := range left {
		_ = proc.Remove(dir) // the next run tries again
	}
	temp, err := os.MkdirTemp(f.cache, ".tmp.")
	if err != nil {
		return nil, fmt.Errorf("make a folder to build API servers in: %w", err)
	}
	b := &builder{Finder: f, mode: mode, pin: pin, temp: temp}
	for _, dir := range []string{b.work(), b.out()} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return nil, errors.Join(fmt.Errorf("make a folder to build API servers in: %w", err), proc.Remove(temp))
		}
	}
	return b, nil
}

func (b *builder) close()       { _ = proc.Remove(b.temp) }
func (b *builder) work() string { return filepath.Join(b.temp, "work") }
func (b *builder) out() string  { return filepath.Join(b.temp, "out") }

// download returns the folder of the newest patch of the pin's minor version that
// setup-envtest offers. It downloads into temp: in the store that it shares with
// other projects an interrupted run leaves a broken version.
func (b *builder) download(ctx context.Context) (string, error) {
	if os.Getenv("FRESHMAPPER_ENVTEST_OFFLINE") != "" || os.Getenv("ENVTEST_INSTALLED_ONLY") != "" {
		return "", errors.New("no download: FRESHMAPPER_ENVTEST_OFFLINE or ENVTEST_INSTALLED_ONLY is set")
	}
	fetched, err := b.fetch(ctx)
	if err != nil {
		return "", fmt.Errorf("setup-envtest has nothing to download, or there is no network: %w", err)
	}
	if err := os.Chmod(fetched, 0o755); err != nil { // it does not move otherwise
		return "", err
	}
	dir := filepath.Join(b.downloads(), filepath.Base(fetched))
	return dir, b.install(fetched, dir)
}

// install moves a folder into the cache.
func (b *builder) install(from, to string) error {
	err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o755), proc.Remove(to))
	if err == nil {
		err = os.Rename(from, to)
	}
	if err != nil {
		return fmt.Errorf("put API servers into the cache: %w", err)
	}
	return nil
}

// fetch returns a folder in temp. It asks for the index before it downloads, with
// seconds to answer: a network that swallows packets costs no more than that.
func (b *builder) fetch(ctx context.Context) (string, error) {
	minor := b.pin[:strings.LastIndex(b.pin, ".")] + ".x"
	b.Say("asking setup-envtest for Kubernetes %s", minor)
	if err := online(ctx); err != nil {
		return "", err
	}
	tool, to := filepath.Join(b.temp, "setup-envtest"), filepath.Join(b.temp, "download")
	var log bytes.Buffer
	limited, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if err := b.compile(limited, "setup", "sigs.k8s.io/controller-runtime/tools/setup-envtest", tool, "-s -w", &log); err != nil {
		return "", err
	}
	limited, cancel = context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	offers, err := proc.Output(limited, "", nil, tool, "--bin-dir", to, "list", minor)
	if err != nil {
		return "", err
	}
	if !regexp.MustCompile(`\(available\).*` + strings.Replace(b.platform, "-", "/", 1)).MatchString(offers) {
		return "", fmt.Errorf("no Kubernetes %s for %s", minor, b.platform)
	}
	b.Say("downloading")
	limited, cancel = context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	if _, err := proc.Output(limited, "", []string{"TMPDIR=" + b.work()}, tool, "--bin-dir", to, "--use-env=false", "use", "-p", "path", minor); err != nil {
		return "", err
	}
	dir := b.newestOf(ctx, filepath.Join(to, "k8s"), b.mode)
	if dir == "" {
		return "", errors.New("what it downloaded does not fit")
	}
	return dir, nil
}

// online checks that the host of setup-envtest's index answers, unless a proxy has
// to be asked. Without it an offline machine would compile setup-envtest, a minute
// where Go's build cache is empty, to learn that there is no network.
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
	target, begun := b.built(b.pin), time.Now()
	log, err := os.Create(target + ".log")
	if err != nil {
		return "", fmt.Errorf("write a log of the build: %w", err)
	}
	defer log.Close() //nolint:errcheck // it is for a reader, who has the error
	b.Say("building kube-apiserver %s and etcd %s from source: minutes, but only once (log: %s)", b.pin, etcd, log.Name())
	for _, program := range []struct{ name, folder, pkg, flags string }{
		{"kube-apiserver", b.mode.Name, "k8s.io/kubernetes/cmd/kube-apiserver", versionFlags(b.pin)},
		{"etcd", "etcd", ".", "-s -w"},
	} {
		if err := b.compile(ctx, program.folder, program.pkg, filepath.Join(b.out(), program.name), program.flags, log); err != nil {
			return "", fmt.Errorf("building %s for %s failed: %w: the log is %s", program.name, b.mode.Name, err, log.Name())
		}
	}
	if err := placeholder(filepath.Join(b.out(), "kubectl")); err != nil {
		return "", err
	}
	if err := b.fits(ctx, b.out(), b.mode); err != nil {
		return "", fmt.Errorf("what was built from hack/envtest/%s does not fit: %w", b.mode.Name, err)
	}
	if err := b.install(b.out(), target); err != nil {
		return "", err
	}
	b.Say("built %s in %.0f s", target, time.Since(begun).Seconds())
	return target, nil
}

// compile builds a package with the versions that hack/envtest/folder pins,
// whatever the caller's Go settings.
func (b *builder) compile(ctx context.Context, folder, pkg, to, ldflags string, log io.Writer) error {
	system, arch, _ := strings.Cut(b.platform, "-")
	_, err := proc.Command{
		Dir:    filepath.Join(b.Root, "hack", "envtest", folder),
		Env:    []string{"CGO_ENABLED=0", "GOOS=" + system, "GOARCH=" + arch, "GOTMPDIR=" + b.work()},
		Args:   []string{"go", "build", "-mod=readonly", "-buildvcs=false", "-trimpath", "-ldflags", ldflags, "-o", to, pkg},
		Stdout: log, Stderr: log,
	}.Run(ctx)
	return err
}

// versionFlags make the server report the version that it was built from.
func versionFlags(version string) string {
	const names = "k8s.io/component-base/version"
	numbers := strings.SplitN(version, ".", 3)
	return fmt.Sprintf("-s -w -X %s.gitVersion=v%s -X %[1]s.gitMajor=%[3]s -X %[1]s.gitMinor=%[4]s", names, version, numbers[0], numbers[1])
}

// placeholder writes what stands for kubectl, which envtest looks for but runs
// only if a test asks for it.
func placeholder(name string) error {
	const script = `#!/bin/sh
echo "this is not kubectl but a placeholder that hack/envtest.sh wrote: install kubectl to use it" >&2
exit 1
`
	return os.WriteFile(name, []byte(script), 0o755)
}
