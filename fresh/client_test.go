// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/freshmapper/freshmapper/apiutil"
)

// honest is a mapper that says what it wraps.
type honest struct{ meta.RESTMapper }

func (h honest) Unwrap() meta.RESTMapper { return h.RESTMapper }

// TestClientFollows: a read finds what has moved at the first try, and so does a write if
// only the plural is another. All else has stock's error and is sent once. The next request
// goes where a new client would send it, but for a write for a namespace of a kind that no
// longer is in any.
func TestClientFollows(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		was, is, plural string
		namespace, name string
		heals           string // the requests that do: "all", "reads" or ""
	}{
		"to the cluster":      {inNamespaces, ofCluster, "configmaps", "ns", "n", "reads"},
		"without a namespace": {inNamespaces, ofCluster, "configmaps", "", "n", "reads"},
		"to a namespace":      {ofCluster, inNamespaces, "configmaps", "ns", "n", "reads"},
		"another plural":      {inNamespaces, inNamespaces, "gizmos", "ns", "n", "all"},
		"another, and scope":  {inNamespaces, ofCluster, "gizmos", "ns", "n", "reads"},
		"and without one":     {ofCluster, inNamespaces, "configmaps", "", "n", ""},
		"gone":                {inNamespaces, "", "", "ns", "n", ""},
		"an absent object":    {inNamespaces, inNamespaces, "configmaps", "ns", "absent", ""},
	} {
		for _, sort := range sorts {
			for what, send := range (caller{sort, configMap}).requests() {
				s := newMovingServer(t, test.was)
				ours, stock := s.client(t, bare), s.client(t, asStock)
				was := map[bool]string{true: "ns"}[test.was == inNamespaces]
				must(t, errors.Join(send(ours, was, "n"), send(stock, was, "n")))
				s.change(func() { s.scope, s.plural = test.is, test.plural })
				_, _ = s.take()
				wantErr := send(stock, test.namespace, test.name)
				wantSent, _ := s.take()
				err := send(ours, test.namespace, test.name)
				sent, _ := s.take()
				if test.is == inNamespaces && test.namespace == "" {
					sent = slices.Compact(sent) // a client of metadata sends what others refuse to send
				}
				if test.heals == "all" || test.heals == "reads" && isRead(what) {
					wantErr, wantSent = nil, sent[:min(2, len(sent))]
				}
				if fmt.Sprint(err) != fmt.Sprint(wantErr) || !slices.Equal(sent, wantSent) {
					t.Errorf("%s: %s %s: %v after %q; want %v after %q", name, sort, what, err, sent, wantErr, wantSent)
				}
				heals := test.is != "" && (test.namespace != "") == (test.is == inNamespaces) || test.is == ofCluster && isRead(what)
				if err := send(ours, test.namespace, test.name); test.name == "n" && (err == nil) != heals {
					t.Errorf("%s: %s %s: then %v", name, sort, what, err)
				}
			}
		}
	}
}

// A write for a namespace never reaches the cluster-wide objects of a kind that was namespaced
// for anybody with the same mapper: not even the first write of a client, whether the mapper
// has noticed the change or not. A write for no namespace goes where the kind is now.
func TestFirstWriteStaysInItsNamespace(t *testing.T) {
	t.Parallel()
	ctx, requests := context.Background(), caller{"unstructured", configMap}.requests()
	for how, use := range map[string]func(*movingServer, client.Client) error{
		"request": func(_ *movingServer, c client.Client) error { return requests["Get"](c, "ns", "n") },
		"lookup": func(_ *movingServer, c client.Client) error {
			_, err := c.IsObjectNamespaced(&corev1.ConfigMap{})
			return err
		},
		"informer": func(s *movingServer, c client.Client) error {
			cached, _ := s.caching(t, cache.Options{Mapper: c.RESTMapper()})
			_, err := cached.GetInformer(ctx, &corev1.ConfigMap{})
			return err
		},
	} {
		for what, write := range requests {
			for _, noticed := range []bool{true, false} {
				if isRead(what) || strings.HasPrefix(what, "Namespaced.") {
					continue
				}
				s := newMovingServer(t, inNamespaces)
				first := s.sharing(t)
				must(t, use(s, first))
				s.change(func() { s.scope = ofCluster })
				if noticed {
					must(t, first.RESTMapper().(interface {
						Refresh(context.Context, ...string) error
					}).Refresh(ctx))
				}
				_ = s.clusterWide()
				wrapped := s.client(t, func(meta.RESTMapper) meta.RESTMapper { return honest{first.RESTMapper()} })
				for i, c := range []client.Client{first, wrapped, s.sharing(t)} {
					if err, sent := write(c, "ns", "n"), s.clusterWide(); !apierrors.IsNotFound(err) || len(sent) > 0 {
						t.Errorf("%s, noticed %t, client %d: %s: got %v after %q, want a 404", how, noticed, i, what, err, sent)
					}
					if err, sent := write(c, "", "n"), s.clusterWide(); err != nil || len(sent) != 1 {
						t.Errorf("%s, noticed %t, client %d: %s without one: got %v after %q", how, noticed, i, what, err, sent)
					}
				}
			}
		}
	}
}

// clusterWide returns the writes since the last call that are not of the namespace "ns".
func (s *movingServer) clusterWide() []string {
	sent, _ := s.take()
	return slices.DeleteFunc(sent, func(path string) bool {
		return strings.HasPrefix(path, "GET ") || strings.Contains(path, "/namespaces/ns/")
	})
}

// changing is a mapper that learns of another scope between any two lookups.
type changing struct {
	honest
	lookups atomic.Int32
}

func (m *changing) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	mapping, err := m.honest.RESTMapping(gk, versions...)
	if err == nil && m.lookups.Add(1)%2 == 0 {
		mapping.Scope = meta.RESTScopeRoot
	}
	return mapping, err
}

// A write is sent with the scope that it was judged by.
func TestWriteWhileTheScopeChanges(t *testing.T) {
	for _, sort := range sorts {
		for what, write := range (caller{sort, configMap}).requests() {
			s := newMovingServer(t, inNamespaces)
			c := s.client(t, func(m meta.RESTMapper) meta.RESTMapper { return &changing{honest: honest{m}} })
			for range 4 {
				_ = write(c, "ns", "n")
			}
			if sent := s.clusterWide(); len(sent) > 0 {
				t.Errorf("%s %s: sent %q", sort, what, sent)
			}
		}
	}
}

// A client says NoMatch of a kind that it never had, though another had it.
func TestKindThatANewClientNeverHad(t *testing.T) {
	s, get := newMovingServer(t, inNamespaces), caller{"typed", configMap}.requests()["Get"]
	old := s.sharing(t)
	must(t, get(old, "ns", "n"))
	s.change(func() { s.scope = "" })
	for range 2 {
		c := s.sharing(t)
		for range 2 {
			if err := get(c, "ns", "n"); !meta.IsNoMatchError(err) {
				t.Errorf("got %v", err)
			}
		}
	}
	if err := get(old, "ns", "n"); !apierrors.IsNotFound(err) {
		t.Errorf("the other: %v", err)
	}
}

// If a kind is mapped as cluster-wide, the list of a namespace must not be the list of all
// namespaces. What a list has from before says nothing about a watch.
func TestListFollows(t *testing.T) {
	ctx := context.Background()
	for _, sort := range sorts {
		s, list := newMovingServer(t, ofCluster), caller{sort, configMap}.list()
		c := s.client(t, bare)
		must(t, c.List(ctx, list))
		s.change(func() { s.scope = inNamespaces })
		_, _ = s.take()
		err := c.List(ctx, list, client.InNamespace("ns"))
		if sent, _ := s.take(); err != nil || meta.LenList(list) != 1 || !slices.Equal(sent, []string{"GET /api/v1/configmaps", "GET /api/v1/namespaces/ns/configmaps"}) {
			t.Errorf("%s: %d objects, %v, sent %q", sort, meta.LenList(list), err, sent)
		}
		s.change(func() { s.scope = ofCluster })
		watching, err := c.Watch(ctx, list)
		must(t, err)
		watching.Stop()
		if sent, _ := s.take(); len(sent) != 1 {
			t.Errorf("%s: sent %q for a watch", sort, sent)
		}
	}
}

// A kind that is gone costs few reads of the served API, however often it is asked for, also by what is made
// later. The client gets the server's 404.
func TestKindThatIsGone(t *testing.T) {
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	c := s.client(t, bare)
	call := func(gone bool) {
		for _, sort := range sorts {
			with := caller{sort, configMap}
			another := s.client(t, func(meta.RESTMapper) meta.RESTMapper { return c.RESTMapper() })
			for _, err := range []error{
				with.requests()["Get"](another, "ns", "n"), with.requests()["Namespaced.Delete"](c, "ns", "n"),
				c.List(ctx, with.list()), newNamespaced(another, "ns").List(ctx, with.list()),
			} {
				if apierrors.IsNotFound(err) != gone || !gone && err != nil {
					t.Errorf("gone: %t: %s: %v", gone, sort, err)
				}
			}
		}
	}
	call(false)
	s.change(func() { s.scope = "" })
	_, _ = s.take()
	for range 10 {
		call(true)
	}
	if _, reads := s.take(); reads > 6 { // 4 to confirm, one lookup
		t.Errorf("%d reads of the served API", reads)
	}
	if err := (caller{"metadata", configMap.GroupVersion().WithKind("Never")}).requests()["Get"](c, "ns", "n"); !meta.IsNoMatchError(err) {
		t.Errorf("a kind that never was: %v", err)
	}
}

// A kind that was gone is found where it is after a reset.
func TestResetOfAKindThatIsBack(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	c, requests := s.client(t, bare), caller{"typed", configMap}.requests()
	must(t, requests["Get"](c, "ns", "n"))
	s.change(func() { s.scope = "" })
	for range 5 { // until the mapper may not confirm it once more
		_ = requests["Get"](c, "ns", "n")
	}
	s.change(func() { s.scope, s.plural = inNamespaces, "gizmos" })
	meta.MaybeResetRESTMapper(c.RESTMapper())
	for _, what := range []string{"Patch", "Get"} {
		must(t, requests[what](c, "ns", "n"))
	}
}

// No write for a kind that is gone reaches another kind that has its resource now, also while what is
// served cannot be read. When the kind is back, it is written to, whether anything else tells the
// mapper or not. Refused writes cost few reads.
func TestKindThatIsReplaced(t *testing.T) {
	for _, sort := range sorts {
		for what, send := range (caller{sort, configMap}).requests() {
			s := newMovingServer(t, inNamespaces)
			c := s.client(t, bare)
			must(t, send(c, "ns", "n"))
			s.change(func() { s.kind = "Another" })
			must(t, c.RESTMapper().(interface {
				Refresh(context.Context, ...string) error
			}).Refresh(context.Background(), ""))
			for _, down := range []bool{true, false} {
				s.change(func() { s.down = down })
				_, _ = s.take()
				err := send(c, "ns", "n")
				if sent, _ := s.take(); !isRead(what) && len(sent) > 0 {
					t.Errorf("%s %s: down: %t: %v after %q", sort, what, down, err, sent)
				}
			}
			s.change(func() { s.kind = configMap.Kind })
			if err := send(c, "ns", "n"); err != nil {
				t.Errorf("%s %s: the kind is back: %v", sort, what, err)
			}
		}
	}
	s := newMovingServer(t, inNamespaces)
	c, send := s.client(t, bare), caller{"typed", configMap}.requests()["Patch"]
	must(t, send(c, "ns", "n"))
	s.change(func() { s.kind = "Another" })
	must(t, c.RESTMapper().(interface {
		Refresh(context.Context, ...string) error
	}).Refresh(context.Background(), ""))
	_, _ = s.take()
	for range 100 {
		_ = send(c, "ns", "n")
	}
	if sent, reads := s.take(); len(sent) > 0 || reads > 10 {
		t.Errorf("100 writes: sent %q, %d reads of the served API", sent, reads)
	}
}

// After a reset a kind that is gone is looked up once, also while that cannot be read. Once it can,
// the kind is found soon, although its old path says only that there is no such object.
func TestKindThatIsGoneAfterAReset(t *testing.T) {
	t.Parallel()
	s := newMovingServer(t, inNamespaces)
	c, get := s.client(t, bare), caller{"typed", configMap}.requests()["Get"]
	must(t, get(c, "ns", "n"))
	s.change(func() { s.scope = "" })
	for range 5 { // until the mapper may not confirm it once more
		_ = get(c, "ns", "n")
	}
	for _, down := range []bool{false, true} {
		s.change(func() { s.down = down })
		meta.MaybeResetRESTMapper(c.RESTMapper())
		_, _ = s.take()
		for range 20 {
			_ = get(c, "ns", "n")
		}
		if _, reads := s.take(); reads == 0 || reads > 5 {
			t.Errorf("down: %t: %d reads of the served API", down, reads)
		}
	}
	s.change(func() { s.down, s.scope, s.named = false, ofCluster, true })
	eventually(t, "the kind is found", func() bool { return get(c, "ns", "n") == nil })
}

// So is one that was found gone by a read from before the reset.
func TestResetWhileAKindIsConfirmed(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	c, get := s.client(t, bare), caller{"typed", configMap}.requests()["Get"]
	must(t, get(c, "ns", "n"))
	s.change(func() { s.scope, s.late = "", 500*time.Millisecond })
	ended := make(chan error)
	go func() { ended <- get(c, "ns", "n") }()
	time.Sleep(200 * time.Millisecond)
	s.change(func() { s.scope, s.late, s.named = ofCluster, 0, true })
	meta.MaybeResetRESTMapper(c.RESTMapper())
	<-ended
	must(t, get(c, "ns", "n"))
}

// While discovery hangs, what says nothing about the path comes at once.
func TestErrorsDoNotWait(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	c, get := s.client(t, bare), caller{"typed", configMap}.requests()["Get"]
	must(t, get(c, "ns", "n"))
	s.change(func() { s.hangs = true })
	began := time.Now()
	for _, name := range []string{"absent", "gateway", "down", "changed", "absent"} {
		if err := get(c, "ns", name); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if took := time.Since(began); took > 2*time.Second { // each would wait for so long
		t.Errorf("it took %v", took)
	}
}

// A list for a namespace never returns what is in others. If it cannot be found out where the kind is, it is an
// error.
func TestListOfANamespaceInAnOutage(t *testing.T) {
	ctx := context.Background()
	for _, sort := range sorts {
		s, list := newMovingServer(t, ofCluster), caller{sort, configMap}.list()
		c := s.client(t, bare)
		must(t, c.List(ctx, list))
		s.change(func() { s.scope, s.down = inNamespaces, true })
		for name, err := range map[string]error{
			"by option": c.List(ctx, list, client.InNamespace("ns")), "by client": newNamespaced(c, "ns").List(ctx, list),
		} {
			if err == nil || apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
				t.Errorf("%s, %s: %v", sort, name, err)
			}
		}
		must(t, c.List(ctx, list)) // at either path it is the same
		s.change(func() { s.down = false })
		eventually(t, "the list of the namespace", func() bool {
			return newNamespaced(c, "ns").List(ctx, list) == nil && meta.LenList(list) == 1
		})
	}
}

// What a server that begins to serve a kind answers for a moment is passed on, and then all is well.
func TestAnswersOfAKindThatBegins(t *testing.T) {
	for _, code := range []int{http.StatusNotFound, http.StatusTooManyRequests, http.StatusServiceUnavailable} {
		s := newMovingServer(t, inNamespaces)
		c, create := s.client(t, bare), caller{"unstructured", configMap}.requests()["Create"]
		s.change(func() { s.refuses[http.MethodPost] = code })
		for range 20 {
			if err := create(c, "ns", "n"); !strings.Contains(fmt.Sprint(err), fmt.Sprint("refused with ", code)) && code != http.StatusTooManyRequests {
				t.Errorf("%d: %v", code, err)
			}
			if code == http.StatusTooManyRequests {
				break // client-go repeats those itself
			}
		}
		s.change(func() { clear(s.refuses) })
		must(t, create(c, "ns", "n"))
		if _, reads := s.take(); reads > 8 {
			t.Errorf("%d: %d reads of the served API", code, reads)
		}
	}
}

// The handler of owners of a program that has only taken the provider asks the mapper for each event. Of a
// kind that is gone that is a read each, or one in a NegativeTTL.
func TestOwnersOfAKindThatIsGone(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	m := s.mapper(t, apiutil.DynamicRESTMapperOptions{NegativeTTL: time.Minute})
	owners := handler.EnqueueRequestForOwner(scheme.Scheme, m, &corev1.ConfigMap{})
	q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
	s.move(t, m, "")
	_, _ = s.take()
	for range 100 {
		owners.Delete(context.Background(), event.DeleteEvent{Object: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: "n"}},
		}}}, q)
	}
	if _, reads := s.take(); reads > 3 { // the document, and the version
		t.Errorf("%d reads of the served API for 100 events", reads)
	}
}

// A client has all that it was made with, and what wraps it adds its own, also after a move.
func TestOptionsOfTheClient(t *testing.T) {
	s := newMovingServer(t, inNamespaces)
	for name, make := range map[string]func(*rest.Config, client.Options) (client.Client, error){
		"client":     func(config *rest.Config, o client.Options) (client.Client, error) { return newClient(config, o) },
		"with watch": func(config *rest.Config, o client.Options) (client.Client, error) { return newWithWatch(config, o) },
	} {
		config, dry := s.config(), true
		var queries []string
		httpClient := &http.Client{Transport: seeing(func(req *http.Request) { queries = append(queries, req.URL.RawQuery) })}
		s.change(func() { s.scope = inNamespaces })
		m := s.mapper(t, apiutil.DynamicRESTMapperOptions{})
		made, err := make(config, client.Options{HTTPClient: httpClient, Mapper: m, DryRun: &dry})
		must(t, err)
		config.Host, dry = "http://elsewhere.invalid", false                         // for the caller's next client
		c := client.WithFieldValidation(client.WithFieldOwner(made, "me"), "Strict") // older releases have no such options
		for _, scope := range []string{inNamespaces, ofCluster, inNamespaces} {
			s.move(t, m, scope)
			queries = nil
			must(t, caller{"unstructured", configMap}.requests()["Update"](c, map[string]string{inNamespaces: "ns"}[scope], "n"))
			if want := []string{"dryRun=All&fieldManager=me&fieldValidation=Strict"}; !slices.Equal(queries, want) {
				t.Errorf("%s, %s: sent %q, want %q", name, scope, queries, want)
			}
		}
	}
}

type seeing func(*http.Request)

func (see seeing) RoundTrip(req *http.Request) (*http.Response, error) {
	see(req)
	return http.DefaultTransport.RoundTrip(req)
}
