// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// DynamicRESTMapper maps kinds to resources, and resources to kinds, as the API server
// serves them now. On a server with aggregated discovery the first lookup reads everything
// that is served, with two requests. A miss, a lookup that memory does not answer, reads the
// part of the server that may have the answer before it returns NoMatch. Make one with
// NewDynamicRESTMapper.
//
// All methods may be called from any goroutine at any time. The slices and mappings
// that they return belong to the caller.
type DynamicRESTMapper struct {
	engine *engine.Engine
}

var _ meta.ResettableRESTMapper = (*DynamicRESTMapper)(nil)

// NewDynamicRESTMapper returns a *DynamicRESTMapper for the API server of cfg. The
// mapper sends its requests through httpClient. NewDynamicRESTMapper sends no request
// and starts no goroutine.
func NewDynamicRESTMapper(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
	return DynamicRESTMapperProvider(DynamicRESTMapperOptions{})(cfg, httpClient)
}

// DynamicRESTMapperProvider returns a function that makes mappers with opts, each a
// *DynamicRESTMapper. It has the type of MapperProvider in the options of controller-runtime's
// manager and cluster, whose GetRESTMapper returns that mapper. Add it to the manager once, or
// RefreshInterval and WatchAPIs have no effect:
//
//	err := mgr.Add(mgr.GetRESTMapper().(*apiutil.DynamicRESTMapper))
func DynamicRESTMapperProvider(
	opts DynamicRESTMapperOptions,
) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		m, err := NewDynamicRESTMapperWithOptions(cfg, httpClient, opts)
		if err != nil {
			return nil, err // a nil m in a meta.RESTMapper would not be nil
		}
		return m, nil
	}
}

// NewDynamicRESTMapperWithOptions is NewDynamicRESTMapper with options. It
// returns an error if an argument is nil or invalid.
func NewDynamicRESTMapperWithOptions(
	cfg *rest.Config, httpClient *http.Client, opts DynamicRESTMapperOptions,
) (*DynamicRESTMapper, error) {
	if cfg == nil {
		return nil, errors.New("no RESTMapper without a rest.Config: cfg is nil")
	}
	if httpClient == nil {
		return nil, errors.New("no RESTMapper without an HTTP client: httpClient is nil, " +
			"rest.HTTPClientFor(cfg) makes one")
	}
	opts, err := opts.defaulted()
	if err != nil {
		return nil, fmt.Errorf("no RESTMapper with these options: %w", err)
	}
	e, err := engine.New(cfg, httpClient, opts.forEngine())
	if err != nil {
		return nil, err
	}
	return &DynamicRESTMapper{engine: e}, nil
}

// lookupResource answers a lookup by resource that the snapshot does not answer. all is whether the lookup returns
// every match, or only the best one.
func lookupResource[T any](
	ctx context.Context, e *engine.Engine, resource schema.GroupVersionResource, all bool,
	find func(*snapshot.Snapshot, schema.GroupVersionResource) (T, bool, error),
) (T, error) {
	q := snapshot.ResourceQuery(resource)
	q.All = all
	return engine.Lookup(ctx, e, q, func(s *snapshot.Snapshot) (T, bool, error) { return find(s, resource) })
}

// KindFor returns the kind of a resource. You may leave out group and
// version. Without a version, the beginning of a group's name is enough. The resource may
// be plural or singular. If several kinds match, KindFor returns the one that the server
// prefers. The error is a *meta.NoResourceMatchError if the server serves no such
// resource. Any other error means that this could not be found out; it wraps an
// *ErrResourceDiscoveryFailed if single group-versions could not be read.
func (m *DynamicRESTMapper) KindFor(resource schema.GroupVersionResource) (schema.GroupVersionKind, error) {
	return m.KindForWithContext(context.Background(), resource)
}

// KindForWithContext is KindFor. If it has to read the server, it returns an error when ctx ends.
func (m *DynamicRESTMapper) KindForWithContext(
	ctx context.Context, resource schema.GroupVersionResource,
) (schema.GroupVersionKind, error) {
	kind, current, err := m.engine.Reloader.Snapshot().KindFor(resource)
	if current {
		m.engine.NoteUse()
		return kind, err
	}
	return lookupResource(ctx, m.engine, resource, false, (*snapshot.Snapshot).KindFor)
}

// KindsFor returns every kind that has such a resource, in the server's order. It takes what KindFor takes, and returns
// the same errors.
func (m *DynamicRESTMapper) KindsFor(resource schema.GroupVersionResource) ([]schema.GroupVersionKind, error) {
	return m.KindsForWithContext(context.Background(), resource)
}

// KindsForWithContext is KindsFor. If it has to read the server, it returns an error when ctx ends.
func (m *DynamicRESTMapper) KindsForWithContext(
	ctx context.Context, resource schema.GroupVersionResource,
) ([]schema.GroupVersionKind, error) {
	kinds, current, err := m.engine.Reloader.Snapshot().KindsFor(resource)
	if current {
		m.engine.NoteUse()
		return kinds, err
	}
	return lookupResource(ctx, m.engine, resource, true, (*snapshot.Snapshot).KindsFor)
}

// ResourceFor returns a resource with the group, the version and the plural name that
// the server has for it. It takes what KindFor takes, and returns the same errors.
func (m *DynamicRESTMapper) ResourceFor(input schema.GroupVersionResource) (schema.GroupVersionResource, error) {
	return m.ResourceForWithContext(context.Background(), input)
}

// ResourceForWithContext is ResourceFor. If it has to read the server, it returns an error when ctx ends.
func (m *DynamicRESTMapper) ResourceForWithContext(
	ctx context.Context, input schema.GroupVersionResource,
) (schema.GroupVersionResource, error) {
	resource, current, err := m.engine.Reloader.Snapshot().ResourceFor(input)
	if current {
		m.engine.NoteUse()
		return resource, err
	}
	return lookupResource(ctx, m.engine, input, false, (*snapshot.Snapshot).ResourceFor)
}

// ResourcesFor returns every resource that matches, in the server's order. It takes what KindFor takes, and returns the
// same errors.
func (m *DynamicRESTMapper) ResourcesFor(input schema.GroupVersionResource) ([]schema.GroupVersionResource, error) {
	return m.ResourcesForWithContext(context.Background(), input)
}

// ResourcesForWithContext is ResourcesFor. If it has to read the server, it returns an error when ctx ends.
func (m *DynamicRESTMapper) ResourcesForWithContext(
	ctx context.Context, input schema.GroupVersionResource,
) ([]schema.GroupVersionResource, error) {
	resources, current, err := m.engine.Reloader.Snapshot().ResourcesFor(input)
	if current {
		m.engine.NoteUse()
		return resources, err
	}
	return lookupResource(ctx, m.engine, input, true, (*snapshot.Snapshot).ResourcesFor)
}

// RESTMapping returns the mapping of a kind in the first of the versions that serves it;
// without versions, in the version that the server prefers. The error is a
// *meta.NoKindMatchError if the server does not serve the kind. Any other error means
// that this could not be found out; it wraps an *ErrResourceDiscoveryFailed if single
// group-versions could not be read.
func (m *DynamicRESTMapper) RESTMapping(gk schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	return m.RESTMappingWithContext(context.Background(), gk, versions...)
}

// RESTMappingWithContext is RESTMapping. If it has to read the server, it returns an error when ctx ends.
func (m *DynamicRESTMapper) RESTMappingWithContext(
	ctx context.Context, gk schema.GroupKind, versions ...string,
) (*meta.RESTMapping, error) {
	mapping, current, err := m.engine.Reloader.Snapshot().RESTMapping(gk, versions)
	if current {
		m.engine.NoteUse()
		return mapping, err
	}
	versions = slices.Clone(versions) // so that on a hit they may stay on the caller's stack
	q := snapshot.KindQuery(gk, versions)
	return engine.Lookup(ctx, m.engine, q, func(s *snapshot.Snapshot) (*meta.RESTMapping, bool, error) {
		return s.RESTMapping(gk, versions)
	})
}

// RESTMappings returns the mappings of a kind in those of the versions that serve it;
// without versions, in all versions that do. They are in the server's order of versions.
// It returns the same errors as RESTMapping.
func (m *DynamicRESTMapper) RESTMappings(gk schema.GroupKind, versions ...string) ([]*meta.RESTMapping, error) {
	return m.RESTMappingsWithContext(context.Background(), gk, versions...)
}

// RESTMappingsWithContext is RESTMappings. If it has to read the server, it returns an error when ctx ends.
func (m *DynamicRESTMapper) RESTMappingsWithContext(
	ctx context.Context, gk schema.GroupKind, versions ...string,
) ([]*meta.RESTMapping, error) {
	mappings, current, err := m.engine.Reloader.Snapshot().RESTMappings(gk, versions)
	if current {
		m.engine.NoteUse()
		return mappings, err
	}
	versions = slices.Clone(versions)
	q := snapshot.KindQuery(gk, versions)
	q.All = true
	return engine.Lookup(ctx, m.engine, q, func(s *snapshot.Snapshot) ([]*meta.RESTMapping, bool, error) {
		return s.RESTMappings(gk, versions)
	})
}

// ResourceSingularizer returns the singular name of a resource that any group
// serves under that plural name. If none does, it returns the given name and an error.
func (m *DynamicRESTMapper) ResourceSingularizer(resource string) (string, error) {
	return m.ResourceSingularizerWithContext(context.Background(), resource)
}

// ResourceSingularizerWithContext is ResourceSingularizer. If it has to read the server, it returns an error when ctx
// ends.
func (m *DynamicRESTMapper) ResourceSingularizerWithContext(ctx context.Context, resource string) (string, error) {
	singular, current, err := m.engine.Reloader.Snapshot().ResourceSingularizer(resource)
	if current {
		m.engine.NoteUse()
		return singular, err
	}
	q := snapshot.ResourceQuery(schema.GroupVersionResource{Resource: resource})
	q.Singular = true
	singular, err = engine.Lookup(ctx, m.engine, q, func(s *snapshot.Snapshot) (string, bool, error) {
		return s.ResourceSingularizer(resource)
	})
	if err != nil {
		return resource, err
	}
	return singular, nil
}
