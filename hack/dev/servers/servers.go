// SPDX-License-Identifier: Apache-2.0

// Package servers finds API servers for tests, downloads them, or builds them.
// hack/envtest/README.md says more.
package servers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"go/version"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"time"

	"github.com/freshmapper/freshmapper/hack/dev/proc"
)

// Mode is what is asked of an API server, and the folder below hack/envtest whose
// go.mod pins the one to build.
type Mode struct {
	Name, means    string
	oldest, newest int // minor versions
}

// The two modes. Latest serves aggregated discovery v2; Legacy v2beta1, and none
// if told so.
var (
	Latest = Mode{"latest", "1.30 or newer", 30, 999}
	Legacy = Mode{"legacy", "1.26 to 1.29", 26, 29}
)

// platform ends the names of the folders in setup-envtest's store, and in ours.
const platform = runtime.GOOS + "-" + runtime.GOARCH

// Finder finds servers.
type Finder struct {
	root  string // of the checkout
	cache string
	say   func(format string, args ...any)
}

// New returns a finder that caches where the environment says.
func New(root string, say func(format string, args ...any)) (*Finder, error) {
	cache := os.Getenv("FRESHMAPPER_CACHE")
	if cache == "" {
		home, err := os.UserHomeDir()
		if err != nil {
			return nil, fmt.Errorf("find a folder to cache API servers in: %w: set FRESHMAPPER_CACHE", err)
		}
		cache = filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "freshmapper")
	}
	cache, err := filepath.Abs(filepath.Join(cache, "envtest"))
	if err != nil {
		return nil, fmt.Errorf("find the folder to cache API servers in: %w", err)
	}
	return &Finder{root: root, cache: cache, say: say}, nil
}

// Find returns a folder with kube-apiserver, etcd and a kubectl, which may be a
// placeholder. What is there already is used without a lock: a folder appears in
// the cache complete, or not at all.
func (f *Finder) Find(ctx context.Context, mode Mode) (string, error) {
	if dir := os.Getenv("KUBEBUILDER_ASSETS"); dir != "" {
		err := fits(ctx, dir, mode)
		if err == nil {
			return filepath.Abs(dir)
		}
		f.say("KUBEBUILDER_ASSETS=%s is not used: %v", dir, err)
	}
	if dir := newestOf(ctx, store(), mode); dir != "" {
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

// cached returns what was built or downloaded before, "" if there is neither.
func (f *Finder) cached(ctx context.Context, mode Mode, pin string) string {
	if built := f.built(pin); fits(ctx, built, mode) == nil {
		return built
	}
	return newestOf(ctx, f.downloads(), mode)
}

func (f *Finder) built(pin string) string { return filepath.Join(f.cache, pin+"-"+platform) }
func (f *Finder) downloads() string       { return filepath.Join(f.cache, "k8s") }

// pinned is the version, without the v, that the go.mod of hack/envtest/folder
// requires.
func (f *Finder) pinned(folder, module string) (string, error) {
	name := filepath.Join(f.root, "hack", "envtest", folder, "go.mod")
	text, err := os.ReadFile(name)
	if err != nil {
		return "", fmt.Errorf("find out which %s to build: %w", module, err)
	}
	found := regexp.MustCompile(`(?m)^(?:require)?\s*` + regexp.QuoteMeta(module) + ` v(\S+)`).FindSubmatch(text)
	if found == nil {
		return "", fmt.Errorf("%s does not require %s", name, module)
	}
	return string(found[1]), nil
}

// newestOf returns the newest version in a store that fits, "" if there is none.
func newestOf(ctx context.Context, store string, mode Mode) string {
	dirs, _ := filepath.Glob(filepath.Join(store, "*-"+platform)) // the pattern is a good one
	goLike := func(dir string) string { return "go" + filepath.Base(dir) }
	slices.SortFunc(dirs, func(a, b string) int { return version.Compare(goLike(b), goLike(a)) })
	for _, dir := range dirs {
		if fits(ctx, dir, mode) == nil {
			return dir
		}
	}
	return ""
}

var minor = regexp.MustCompile(`v1\.([0-9]+)\.`)

// fits checks that both programs are there and run, and that the server has a
// version that the mode asks for.
func fits(ctx context.Context, dir string, mode Mode) error {
	var said string
	for _, program := range []string{"etcd", "kube-apiserver"} {
		var err error
		if said, err = proc.Output(ctx, "", nil, filepath.Join(dir, program), "--version"); err != nil {
			return fmt.Errorf("it has no %s that runs", program)
		}
	}
	n := -1
	if found := minor.FindStringSubmatch(said); found != nil {
		n, _ = strconv.Atoi(found[1])
	}
	if n < mode.oldest || n > mode.newest {
		return fmt.Errorf("its version is %q, and %s means %s", said, mode.Name, mode.means)
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
	left, _ := filepath.Glob(filepath.Join(f.cache, ".tmp.*"))
	for _, dir := range left { // by runs that were killed: only the holder of the lock has one
		_ = proc.Remove(dir) // the next run tries again
	}
	temp, err := os.MkdirTemp(f.cache, ".tmp.")
	if err != nil {
		return "", fmt.Errorf("make a folder to build API servers in: %w", err)
	}
	defer func() { _ = proc.Remove(temp) }()
	b := &builder{Finder: f, mode: mode, pin: pin, temp: temp}
	dir, err = b.download(ctx)
	if err == nil || ctx.Err() != nil {
		return dir, errors.Join(err, ctx.Err())
	}
	f.say("%v", err)
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
			f.say("waiting for another process, which holds %s", name)
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(500 * time.Millisecond):
		}
	}
}
