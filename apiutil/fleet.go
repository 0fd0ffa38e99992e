// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
)

// Fleet has the mappers of a program that works with many clusters, all with the same
// options. A mapper refreshes as long as its cluster is engaged. Make a fleet with
// NewFleet. Then put MapperProvider into the options of each cluster, and call Engage
// with the name, the context and the mapper of each cluster that was made. The
// providers of sigs.k8s.io/multicluster-runtime have both hooks.
//
// Its methods may be called from any goroutine at any time.
type Fleet struct {
	options DynamicRESTMapperOptions
	started atomic.Bool // Start was called

	// mu guards clusters, ended and the members. A member knows its fleet by the address
	// of mu. Nobody waits for anything while it holds mu.
	mu       sync.Mutex
	clusters map[string]*engagement
	ended    bool // the context of Start has ended

	runs sync.WaitGroup // mappers that refresh; added to under mu while ended is false
}

// engagement is the engagement of one cluster. The cluster's context ends it.
type engagement struct {
	mapper *DynamicRESTMapper
	forget func() bool // no longer wait for the context to end
}

// NewFleet returns a fleet whose mappers have these options. If the options are
// invalid, MapperProvider returns the error.
func NewFleet(opts DynamicRESTMapperOptions) *Fleet {
	return &Fleet{options: opts, clusters: map[string]*engagement{}}
}

// MapperProvider makes a mapper of the fleet for the API server of cfg. The mapper
// refreshes once its cluster is engaged. Use MapperProvider as the option of the same
// name of controller-runtime's cluster and manager.
func (f *Fleet) MapperProvider(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	m, err := NewDynamicRESTMapperWithOptions(cfg, httpClient, f.options)
	if err != nil {
		return nil, err // m in a meta.RESTMapper would not be nil
	}
	m.member = &member{mu: &f.mu}
	return m, nil
}

// Engage refreshes the mapper of a cluster until ctx ends. After that the fleet keeps
// nothing of the cluster. MapperProvider of this fleet must have made the mapper.
// Engage does not block.
//
// Engage replaces a cluster of the same name. A mapper may be engaged for several
// clusters, and again after they are gone: it refreshes while at least one is engaged.
// Engage returns an error, and changes nothing, if the fleet did not make the mapper, if
// somebody else started the mapper, or if ctx or Start of the fleet has ended.
func (f *Fleet) Engage(ctx context.Context, cluster string, mapper meta.RESTMapper) error {
	m, ok := mapper.(*DynamicRESTMapper)
	if !ok || m == nil || m.member == nil || m.member.mu != &f.mu {
		return fmt.Errorf("cluster %q does not join the fleet: its RESTMapper, a %T, was not made by the fleet, "+
			"set MapperProvider in the options of the cluster to that of the fleet", cluster, mapper)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.run(ctx, cluster, m); err != nil {
		return fmt.Errorf("cluster %q does not join the fleet: %w", cluster, err)
	}
	replaced := f.clusters[cluster]
	e := &engagement{mapper: m}
	e.forget = context.AfterFunc(ctx, func() { f.leave(cluster, e) })
	f.clusters[cluster] = e
	if replaced != nil { // after run, so that the same mapper does not stop in between
		f.release(replaced)
	}
	return nil
}

// run makes the mapper refresh for one more cluster. From now on the mapper logs that
// cluster's name. The caller holds mu.
func (f *Fleet) run(ctx context.Context, cluster string, m *DynamicRESTMapper) error {
	mb := m.member
	switch {
	case f.ended:
		return errors.New("Start of the fleet has ended")
	case ctx.Err() != nil: // it must not replace a cluster that came after it
		return context.Cause(ctx)
	case mb.stopped == nil && m.started.Swap(true):
		return errors.New("its RESTMapper was started before, but only the fleet may start it")
	}
	mb.cluster.Store(&cluster)
	if mb.engaged++; mb.engaged > 1 {
		return nil
	}
	before, stopped := mb.stopped, make(chan struct{})
	runCtx, stop := context.WithCancel(context.Background())
	mb.stop, mb.stopped = stop, stopped
	f.runs.Add(1)
	go func() {
		defer f.runs.Done()
		defer close(stopped)
		if before != nil {
			<-before // it may take seconds to stop
		}
		m.run(runCtx)
	}()
	return nil
}

// leave ends an engagement whose context has ended.
func (f *Fleet) leave(cluster string, e *engagement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.clusters[cluster] == e {
		delete(f.clusters, cluster)
		f.release(e)
	}
}

// release takes one cluster from a mapper. The caller holds mu, and has taken the
// engagement out of clusters.
func (f *Fleet) release(e *engagement) {
	e.forget()
	mb := e.mapper.member
	if mb.engaged--; mb.engaged == 0 {
		mb.stop()
		return
	}
	f.rename(e.mapper)
}

// rename chooses another cluster for the log to name if the cluster that it named has
// gone. The caller holds mu.
func (f *Fleet) rename(m *DynamicRESTMapper) {
	if e := f.clusters[*m.member.cluster.Load()]; f.ended || e != nil && e.mapper == m {
		return
	}
	var left []string
	for cluster, e := range f.clusters {
		if e.mapper == m {
			left = append(left, cluster)
		}
	}
	if len(left) > 0 {
		cluster := slices.Min(left)
		m.member.cluster.Store(&cluster)
	}
}

// Start waits until ctx ends. Then it stops all mappers and returns when they have
// stopped. It has the shape of controller-runtime's manager.Runnable. You may engage
// clusters before Start, and without it. It returns an error if it was called before.
func (f *Fleet) Start(ctx context.Context) error {
	if f.started.Swap(true) {
		return errors.New("the fleet was started before: Start may be called once")
	}
	<-ctx.Done()
	f.mu.Lock()
	f.ended = true
	for cluster, e := range f.clusters {
		delete(f.clusters, cluster)
		f.release(e)
	}
	f.mu.Unlock()
	f.runs.Wait()
	return nil
}

// NeedLeaderElection returns false: Start runs on every replica.
func (f *Fleet) NeedLeaderElection() bool { return false }

// Mapper returns the mapper of a cluster, and whether the cluster is engaged.
func (f *Fleet) Mapper(cluster string) (*DynamicRESTMapper, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	e, ok := f.clusters[cluster]
	if !ok {
		return nil, false
	}
	return e.mapper, true
}

func (f *Fleet) mappers() map[string]*DynamicRESTMapper {
	f.mu.Lock()
	defer f.mu.Unlock()
	mappers := make(map[string]*DynamicRESTMapper, len(f.clusters))
	for cluster, e := range f.clusters {
		mappers[cluster] = e.mapper
	}
	return mappers
}

// Status returns the status of each cluster's mapper. It sends no request.
func (f *Fleet) Status() map[string]DynamicRESTMapperStatus {
	all := map[string]DynamicRESTMapperStatus{}
	for cluster, m := range f.mappers() {
		all[cluster] = m.Status()
	}
	return all
}

// Unhealthy returns the clusters whose mapper's Healthz fails, and why. It sends no
// request.
func (f *Fleet) Unhealthy() map[string]error {
	return unhealthy(f.mappers())
}

func unhealthy(mappers map[string]*DynamicRESTMapper) map[string]error {
	failed := map[string]error{}
	for cluster, m := range mappers {
		if err := m.Healthz(nil); err != nil {
			failed[cluster] = err
		}
	}
	return failed
}

// Healthz has the shape of controller-runtime's healthz.Checker. It fails if there are
// clusters and all of them are unhealthy. The error names at most ten of them, with
// the reasons. One cluster that is down is no reason to restart a program that works
// with the others: Unhealthy and the log name it.
func (f *Fleet) Healthz(*http.Request) error {
	mappers := f.mappers()
	failed := unhealthy(mappers)
	if len(mappers) == 0 || len(failed) < len(mappers) {
		return nil
	}
	clusters := slices.Sorted(maps.Keys(failed))
	errs := make([]error, 0, mostNamed)
	for _, cluster := range clusters[:min(len(clusters), mostNamed)] {
		errs = append(errs, fmt.Errorf("cluster %q: %w", cluster, failed[cluster]))
	}
	return fmt.Errorf("all %d clusters are unhealthy: %w", len(clusters), errors.Join(errs...))
}

const mostNamed = 10
