// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"runtime"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A kind at rest takes no more goroutines than in controller-runtime's cache, and two more in a cache of several
// namespaces, however many these are.
func TestGoroutinesOfAKind(t *testing.T) {
	const kinds = 2
	s := newChangingServer(t, inNamespaces)
	count := func(newCache func(*rest.Config, cache.Options) (cache.Cache, error), opts cache.Options) int {
		t.Helper()
		opts.HTTPClient, opts.Mapper = s.Client(), s.client(t, nil).RESTMapper()
		c, err := newCache(s.Config(), opts)
		must(t, err)
		end := start(t, c)
		defer end()
		c.WaitForCacheSync(t.Context())
		before := goroutinesAtRest()
		for _, obj := range []client.Object{&corev1.ConfigMap{}, &corev1.Secret{}} {
			_, err := c.GetInformer(context.Background(), obj)
			must(t, err)
		}
		return goroutinesAtRest() - before
	}
	namespaces := func(names ...string) cache.Options {
		opts := cache.Options{DefaultNamespaces: map[string]cache.Config{}}
		for _, name := range names {
			opts.DefaultNamespaces[name] = cache.Config{}
		}
		return opts
	}
	for _, c := range []struct {
		name string
		opts cache.Options
		more int
	}{
		{"all namespaces", cache.Options{}, 0},
		{"two namespaces", namespaces("ns", "other"), 2},
		{"five namespaces", namespaces("ns", "other", "third", "fourth", "fifth"), 2},
	} {
		ours, stock := count(newCache, c.opts), count(cache.New, c.opts)
		if ours > stock+kinds*c.more {
			t.Errorf(
				"%s: %d kinds take %d goroutines, %d with controller-runtime's cache; want at most %d more for each",
				c.name, kinds, ours, stock, c.more)
		}
	}
}

// goroutinesAtRest returns the number of goroutines when it has not changed for a while.
func goroutinesAtRest() int {
	last, since := runtime.NumGoroutine(), time.Now()
	for time.Since(since) < 100*time.Millisecond {
		time.Sleep(10 * time.Millisecond)
		if now := runtime.NumGoroutine(); now != last {
			last, since = now, time.Now()
		}
	}
	return last
}

// A kind whose path changes all the time, before it was read, is read once in a second, and not with each change.
func TestInstancesAreASecondApart(t *testing.T) {
	virtual(t, func(t *testing.T) {
		s, m, h := handling(t)
		s.take()
		const seconds = 10
		heal := s.SetFault(fakeapi.Lists(""), fakeapi.Late(5*time.Second))
		for i := range 10 * seconds {
			s.changeScope(t, m, []string{ofCluster, inNamespaces}[i%2])
			time.Sleep(100 * time.Millisecond)
		}
		heal()
		sent, _ := s.take()
		if most := 2 * seconds; len(sent) > most { // a try in list mode sends two
			t.Errorf("%d requests for objects in %d seconds, want %d at most", len(sent), seconds, most)
		}
		s.changeScope(t, m, ofCluster)
		h.expect(t, "at last", keysOf[ofCluster])
	})
}
