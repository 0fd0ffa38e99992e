// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	kruntime "k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// While the new path can't be listed, the cache keeps what it had. A line says so once, and it heals.
func TestPathThatCannotBeListed(t *testing.T) {
	said.clear()
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	eventually(t, "the object", func() bool { return has(c, "ns") })
	s.change(func() { s.refuses["list"] = http.StatusForbidden })
	s.move(t, m, ofCluster)
	eventually(t, "a line says so", func() bool { return said.count("cannot follow", "refused with 403", "ConfigMap") > 0 })
	time.Sleep(3 * time.Second)
	if n := said.count("cannot follow"); n != 1 || !has(c, "ns") || has(c, "") {
		t.Errorf("%d lines; the old object: %t, the new one: %t", n, has(c, "ns"), has(c, ""))
	}
	s.change(func() { clear(s.refuses) })
	eventually(t, "it heals", func() bool { return has(c, "") })
}

// A kind that can't be listed holds up nobody else. Who waits for it is told why.
func TestKindThatCannotBeListed(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	c, _ := s.caching(t, cache.Options{})
	eventually(t, "another kind", func() bool { return c.List(context.Background(), &corev1.SecretList{}) == nil })
	s.change(func() { s.refuses["list"] = http.StatusForbidden })
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	got := make(chan error)
	go func() { got <- c.Get(ctx, client.ObjectKey{Namespace: "ns", Name: "n"}, &corev1.ConfigMap{}) }()
	reads := 0
	for ; ctx.Err() == nil; reads++ {
		must(t, c.List(context.Background(), &corev1.SecretList{}))
	}
	if err := <-got; !apierrors.IsTimeout(err) || !strings.Contains(err.Error(), "refused with 403") || reads < 1000 {
		t.Errorf("%v, after %d reads of another kind", err, reads)
	}
	informer, err := c.GetInformer(context.Background(), &corev1.ConfigMap{}, cache.BlockUntilSynced(false))
	must(t, err)
	registered, err := informer.AddEventHandler(&tally{})
	must(t, err)
	time.Sleep(100 * time.Millisecond)
	_, discovered := s.take()
	began := time.Now()
	must(t, errors.Join(informer.RemoveEventHandler(registered), c.RemoveInformer(context.Background(), &corev1.ConfigMap{})))
	if _, more := s.take(); more > 0 || time.Since(began) > time.Second {
		t.Errorf("to remove it took %v and %d reads of the served API (%d before)", time.Since(began), more, discovered)
	}
}

// Where one of several namespaces can't be listed, events of the others go on, also after a move.
func TestNamespaceThatCannotBeListed(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, several())
	informer, err := c.GetInformer(context.Background(), &corev1.ConfigMap{})
	must(t, err)
	h := &tally{}
	_, err = informer.AddEventHandler(h)
	must(t, err)
	eventually(t, "told", func() bool { return h.keys() == "ns/n other/n" })
	s.change(func() { s.refuses["list other"], s.refuses["watch other"] = http.StatusForbidden, http.StatusForbidden })
	s.move(t, m, ofCluster)
	eventually(t, "told again", func() bool { return h.keys() == "n" })
	s.move(t, m, inNamespaces)
	eventually(t, "told of the other namespace", func() bool { return h.keys() == "ns/n" })
	s.change(func() { clear(s.refuses) })
	eventually(t, "told in the end", func() bool { return h.keys() == "ns/n other/n" })
	s.change(func() {
		s.plural, s.refuses["list ns"], s.refuses["watch ns"] = "gizmos", http.StatusForbidden, http.StatusForbidden
	})
	must(t, m.Refresh(context.Background(), ""))
	time.Sleep(1500 * time.Millisecond)
	if keys := h.keys(); keys != "ns/n other/n" {
		t.Errorf("fewer namespaces can be listed than before, and it moves: told of %q", keys)
	}
	s.change(func() { clear(s.refuses) })
	s.change(func() { s.uid = "2" })
	eventually(t, "told of others of the same names", func() bool { log, _ := h.told(); return strings.Count(strings.Join(log, " "), "delete") >= 2 })
	eventually(t, "and of all of them", func() bool { return h.keys() == "ns/n other/n" })
}

// Kinds of options may come late, in whatever scope, and go to the other one and back.
func TestByObject(t *testing.T) {
	namespaces := cache.ByObject{Namespaces: map[string]cache.Config{"ns": {}}}
	for _, scope := range []string{inNamespaces, ofCluster} {
		s := newMovingServer(t, "")
		c, m := s.caching(t, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: namespaces}})
		if err := c.Get(context.Background(), client.ObjectKey{Name: "n"}, &corev1.ConfigMap{}); !meta.IsNoMatchError(err) {
			t.Errorf("%s: before it comes: %v", scope, err)
		}
		s.move(t, m, scope)
		_, _ = s.take()
		eventually(t, "the object", func() bool { return has(c, map[string]string{inNamespaces: "ns"}[scope]) })
		sent, _ := s.take()
		want := map[string]string{inNamespaces: "GET /api/v1/namespaces/ns/configmaps", ofCluster: "GET /api/v1/configmaps"}[scope]
		if sent = slices.Compact(sent); !slices.Equal(sent, []string{want}) {
			t.Errorf("%s: sent %q", scope, sent)
		}
	}
	said.clear()
	s := newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: namespaces}})
	eventually(t, "the object", func() bool { return has(c, "ns") })
	s.move(t, m, ofCluster)
	eventually(t, "a line says so", func() bool { return said.count("cannot follow", "ConfigMap", "Namespaces") > 0 })
	if !has(c, "ns") || said.count("cannot follow") != 1 {
		t.Errorf("the old object: %t, %d lines", has(c, "ns"), said.count("cannot follow"))
	}
	s.move(t, m, inNamespaces)
	eventually(t, "the object is there", func() bool { return has(c, "ns") })
}

// Selectors, transforms and informers of the program's own stay. The store of what has moved is emptied.
func TestOptionsOfTheCache(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	var mu sync.Mutex
	var made []toolscache.SharedIndexInformer
	var queries atomic.Int32
	c, m := s.caching(t, cache.Options{
		HTTPClient: &http.Client{Transport: seeing(func(req *http.Request) {
			if req.URL.Query().Get("labelSelector") == "a=b" {
				queries.Add(1)
			}
		})},
		ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {Label: labels.SelectorFromSet(labels.Set{"a": "b"}), Transform: func(obj any) (any, error) {
			obj.(client.Object).SetAnnotations(map[string]string{"transformed": "yes"})
			return obj, nil
		}}},
		NewInformer: func(lw toolscache.ListerWatcher, obj kruntime.Object, resync time.Duration, x toolscache.Indexers) toolscache.SharedIndexInformer {
			mu.Lock()
			defer mu.Unlock()
			made = append(made, toolscache.NewSharedIndexInformer(lw, obj, resync, x))
			return made[len(made)-1]
		},
	})
	eventually(t, "the object", func() bool { return has(c, "ns") })
	s.move(t, m, ofCluster)
	got := &corev1.ConfigMap{}
	eventually(t, "the cache follows", func() bool { return c.Get(context.Background(), client.ObjectKey{Name: "n"}, got) == nil })
	mu.Lock()
	defer mu.Unlock()
	if got.Annotations["transformed"] != "yes" || len(made) != 2 {
		t.Errorf("%v, %d informers", got.Annotations, len(made))
	}
	eventually(t, "the old store is empty", func() bool { return len(made[0].GetStore().List()) == 0 })
}

// said are the lines that were logged: controller-runtime takes one logger for a program.
var said lines

func TestMain(m *testing.M) {
	log.SetLogger(funcr.New(func(_, args string) {
		said.mu.Lock()
		defer said.mu.Unlock()
		said.all = append(said.all, args)
	}, funcr.Options{}))
	os.Exit(m.Run())
}

type lines struct {
	mu  sync.Mutex
	all []string
}

func (l *lines) clear() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = nil
}

// count counts the lines that have all these texts.
func (l *lines) count(texts ...string) (n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range l.all {
		if !slices.ContainsFunc(texts, func(text string) bool { return !strings.Contains(line, text) }) {
			n++
		}
	}
	return n
}
