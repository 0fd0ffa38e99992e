// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"cmp"
	"fmt"
	"slices"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/fresh/restmappermetrics"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// NewManager is ctrl.NewManager for a manager whose mapper, client, cache and API reader follow the APIs that the
// server serves. It fills in MapperProvider, NewClient and NewCache of the options where they are nil, and changes
// nothing else.
//
// The mapper that it makes logs to ctrl.Log under the name restmapper, and its metrics are in controller-runtime's
// registry; several managers of a program count together. A program that sets MapperProvider decides both for itself.
// GetRESTMapper returns the mapper itself, a *apiutil.DynamicRESTMapper unless MapperProvider makes another; add it
// to the manager if its options need Start.
//
// If the mapper, the client or the cache does not follow, because the options have another one, the log says so.
func NewManager(config *rest.Config, options manager.Options) (manager.Manager, error) {
	if options.MapperProvider == nil {
		recorder, err := restmappermetrics.Shared(metrics.Registry)
		if err != nil {
			return nil, err
		}
		options.MapperProvider = apiutil.DynamicRESTMapperProvider(apiutil.DynamicRESTMapperOptions{
			Logger:  log.Log.WithName("restmapper"),
			Metrics: recorder,
		})
	}
	if options.NewClient == nil {
		options.NewClient = NewClient
	}
	if options.NewCache == nil {
		options.NewCache = NewCache
	}
	mgr, err := manager.New(config, options)
	if err != nil {
		return nil, err
	}
	logWhatDoesNotFollow(mgr)
	reader, err := newAPIReader(config, mgr)
	if err != nil {
		return nil, err
	}
	return &followingManager{mgr, reader}, nil
}

// NewCluster is cluster.New for a cluster whose mapper, client, cache and API reader stay fresh. It fills in
// MapperProvider, NewClient and NewCache of the options where they are nil, and changes nothing else. The cluster's
// GetRESTMapper returns the mapper itself, a *apiutil.DynamicRESTMapper unless MapperProvider makes another.
func NewCluster(config *rest.Config, opts ...cluster.Option) (cluster.Cluster, error) {
	withDefaults := func(options *cluster.Options) {
		if options.MapperProvider == nil {
			options.MapperProvider = apiutil.NewDynamicRESTMapper
		}
		if options.NewClient == nil {
			options.NewClient = NewClient
		}
		if options.NewCache == nil {
			options.NewCache = NewCache
		}
	}
	made, err := cluster.New(config, append(slices.Clone(opts), withDefaults)...) // last: it fills in what is left out
	if err != nil {
		return nil, err
	}
	reader, err := newAPIReader(config, made)
	if err != nil {
		return nil, err
	}
	return &followingCluster{made, reader}, nil
}

// newAPIReader makes an API reader that follows. Upstream's cluster makes its own by client.New, whatever NewClient
// is.
func newAPIReader(config *rest.Config, of cluster.Cluster) (client.Reader, error) {
	named := rest.CopyConfig(config)
	named.UserAgent = cmp.Or(named.UserAgent, rest.DefaultKubernetesUserAgent())
	return NewClient(named, client.Options{
		HTTPClient: of.GetHTTPClient(),
		Scheme:     of.GetScheme(),
		Mapper:     of.GetRESTMapper(),
	})
}

// logWhatDoesNotFollow writes one line if parts of a manager are not ours.
func logWhatDoesNotFollow(mgr manager.Manager) {
	var others []string
	if follow.Of(mgr.GetRESTMapper(), follow.WaitBriefly) == nil {
		others = append(others, fmt.Sprintf("RESTMapper %T", mgr.GetRESTMapper()))
	}
	if _, ours := mgr.GetClient().(*followingClient); !ours {
		others = append(others, fmt.Sprintf("client %T", mgr.GetClient()))
	}
	if _, ours := mgr.GetCache().(*followingCache); !ours {
		others = append(others, fmt.Sprintf("cache %T", mgr.GetCache()))
	}
	if len(others) > 0 {
		log.Log.WithName("fresh").Info("These parts of the manager do not recover after a CRD changes", "parts", others,
			"hint", "leave them out of the options; "+
				"a RESTMapper that wraps another one needs a method Unwrap() meta.RESTMapper")
	}
}

// followingManager has an API reader that follows.
type followingManager struct {
	manager.Manager
	reader client.Reader
}

func (m *followingManager) GetAPIReader() client.Reader { return m.reader }

// followingCluster has an API reader that follows.
type followingCluster struct {
	cluster.Cluster
	reader client.Reader
}

func (c *followingCluster) GetAPIReader() client.Reader { return c.reader }
