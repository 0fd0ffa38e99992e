// SPDX-License-Identifier: Apache-2.0

// Package servers finds API servers for tests, downloads them, or builds them.
// hack/envtest/README.md says more.
package servers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// Mode is what is asked of an API server, and the folder below hack/envtest whose
// go.mod pins the one to build.
type Mode struct {
	Name           string
	oldest, newest int // minor versions
}

// The two modes. Latest serves aggregated discovery v2; Legacy v2beta1, and none
// if told so.
var (
	Latest = Mode{"latest", 30, 999}
	Legacy = Mode{"legacy", 26, 29}
)

func (m Mode) String() string {
	if m.newest > 99 {
		return fmt.Sprintf("1.%d or newer", m.oldest)
	}
	return fmt.Sprintf("1.%d to 1.%d", m.oldest, m.newest)
}

// programs are what a folder must hold to be of use.
var programs = []string{"kube-apiserver", "etcd"}

// Finder finds servers.
type Finder struct {
	Root string // of the checkout
	Say  func(format string, args ...any)

	platform string // GOOS-GOARCH, as setup-envtest has it
	cache    string
}

// New returns a finder that caches where the environment says.
func New(root string, say func(format string, args ...any)) (*Finder, error) {
	cache := os.Getenv("FRESHMAPPER_CACHE")
	if cache == "" {
		above := os.Getenv("XDG_CACHE_HOME")
		if above == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return nil, fmt.Errorf("find a folder to cache API servers in: %w: set FRESHMAPPER_CACHE", err)
			}
			above = filepath.Join(home, ".cache")
		}
		cache = filepath.Join(above, "freshmapper")
	}
	cache, err := filepath.Abs(cache)
	if err != nil {
		return nil, fmt.Errorf("find the folder to cache API servers in: %w", err)
	}
	return &Finder{Root: root, Say: say, platform: runtime.GOOS + "-" + runtime.GOARCH, cache: filepath.Join(cache, "envtest")}, nil
}

// Find returns a folder with kube-apiserver, etcd and a kubectl, which may be a
// placeholder. What is there already is used without a lock: a folder appears in
// the cache complete, or not at all.
func (f *Finder) Find(ctx context.Context, mode Mode) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		err := f.fits(ctx, dir, mode)
		if err == nil {
			return filepath.Abs(dir)
		}
		f.Say("KUBEBUILDER_ASSETS=%s is not used: %v", dir, err)
	}
	if dir := f.newestOf(ctx, filepath.Join(dataHome(), storePath()), mode); dir != "" {
		return dir, nil
	}
	pin, err := f.pinned(mode.Name, "k8s.io/kubernetes")
	if err != nil {
		return "", err
	}
	if dir := f.cached(ctx, mode, pin); dir != "" {
		return dir, nil
	}
	return f.obtain(ctx, mode, pin)
}

func (f *Finder) cached(ctx context.Context, mode Mode, pin string) string {
	if built := f.built(pin); f.fits(ctx, built, mode) == nil {
		return built
	}
	return f.newestOf(ctx, f.downloads(), mode)
}

func (f *Finder) built(pin string) string { return filepath.Join(f.cache, pin+"-"+f.platform) }

func (f *Finder) downloads() string { return filepath.Join(f.cache, "k8s") }

// pinned is the version, without the v, that the go.mod of hack/envtest/folder
// requires.
func (f *Finder) pinned(folder, module string) (string, error) {
	name := filepath.Join(f.Root, "hack", "envtest", folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("read which %s to build: %w", module, err)
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s does not require %s", name, module)
	}
	return string(found[1]), nil
}

// dataHome and storePath: setup-envtest keeps version V in
// <dataHome>/<storePath>/V-<platform>, as sigs.k8s.io/controller-runtime's
// envtest.SetupEnvtestDefaultBinaryAssetsDirectory has it.
func dataHome() string {
	data := os.Getenv("XDG_DATA_HOME")
	if runtime.GOOS == "darwin" || data == "" {
		data = os.Getenv("HOME")
		if runtime.GOOS != "darwin" {
			data = filepath.Join(data, ".local", "share")
		}
	}
	return data
}

func storePath() string {
	if runtime.GOOS == "darwin" {
		return "Library/Application Support/io.kubebuilder.envtest/k8s"
	}
	return "kubebuilder-envtest/k8s"
}

// newestOf returns the newest version in a store that fits, "" if there is none.
func (f *Finder) newestOf(ctx context.Context, store string, mode Mode) string {
	entries, _ := os.ReadDir(store) // often there is none
	var names []string
	for _, entry := range entries {
		if strings.HasSuffix(entry.Name(), "-"+f.platform) {
			names = append(names, entry.Name())
		}
	}
	slices.SortFunc(names, func(a, b string) int { return slices.Compare(numbers(b), numbers(a)) })
	for _, name := range names {
		if dir := filepath.Join(store, name); f.fits(ctx, dir, mode) == nil {
			return dir
		}
	}
	return ""
}

// numbers are those of a version, the most important first.
func numbers(name string) []int {
	version, _, _ := strings.Cut(name, "-")
	var all []int
	for _, word := range strings.Split(version, ".") {
		n, _ := strconv.Atoi(word) // what is no number counts least
		all = append(all, n)
	}
	return all
}

var minor = regexp.MustCompile(`v1\.([0-9]+)\.`)

// fits checks that both programs are there, run, and have a version that the mode
// asks for.
func (f *Finder) fits(ctx context.Context, dir string, mode Mode) error {
	for _, program := range programs {
		version, err := proc.Output(ctx, "", nil, filepath.Join(dir, program), "--version")
		if err != nil {
			return fmt.Errorf("no %s that runs", program)
		}
		if program == "etcd" {
			continue
		}
		n := -1
		if found := minor.FindStringSubmatch(version); found != nil {
			n, _ = strconv.Atoi(found[1])
		}
		if n < mode.oldest || n > mode.newest {
			return fmt.Errorf("its version is %q, and %s means %s", version, mode.Name, mode)
		}
	}
	return nil
}

// obtain puts servers into the cache. One process at a time does so; the others
// wait, and then find what it made.
func (f *Finder) obtain(ctx context.Context, mode Mode, pin string) (dir string, err error) {
	if err := os.MkdirAll(f.cache, 0o755); err != nil {
		return "", fmt.Errorf("make the folder to cache API servers in: %w", err)
	}
	unlock, err := f.lock(ctx)
	if err != nil {
		return "", err
	}
	defer unlock()
	if dir := f.cached(ctx, mode, pin); dir != "" {
		return dir, nil
	}
	b, err := f.newBuilder(mode, pin)
	if err != nil {
		return "", err
	}
	defer b.close()
	dir, err = b.download(ctx)
	if err == nil || ctx.Err() != nil {
		return dir, errors.Join(err, ctx.Err())
	}
	f.Say("%v", err)
	return b.build(ctx)
}

// lock waits until no other process obtains servers.
func (f *Finder) lock(ctx context.Context) (unlock func(), err error) {
	name := filepath.Join(f.cache, "flock")
	for told := false; ; told = true {
		unlock, locked, err := proc.TryLock(name)
		if err != nil {
			return nil, fmt.Errorf("lock %s: %w", name, err)
		}
		if locked {
			return unlock, nil
		}
		if !told {
			f.Say("waiting for another process, which holds %s", name)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}
