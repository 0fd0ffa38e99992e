// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"cmp"
	"fmt"

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

// NewManager is ctrl.NewManager for a manager whose mapper, client, cache and API reader follow the APIs that the server
// serves. It fills in MapperProvider, NewClient and NewCache of the options where they are nil, and changes nothing else.
//
// The mapper that it makes logs to ctrl.Log under the name restmapper, and its metrics are in controller-runtime's registry;
// several managers of a program count together. A program that sets MapperProvider decides both for itself. GetRESTMapper
// returns the mapper itself, a *apiutil.DynamicRESTMapper unless MapperProvider makes another; add it to the manager if its
// options need Start.
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
	named := rest.CopyConfig(config)
	named.UserAgent = cmp.Or(named.UserAgent, rest.DefaultKubernetesUserAgent())
	reader, err := NewClient(named, client.Options{HTTPClient: mgr.GetHTTPClient(), Scheme: mgr.GetScheme(), Mapper: mgr.GetRESTMapper()})
	if err != nil {
		return nil, err
	}
	return &followingManager{mgr, reader}, nil
}

// Cluster makes the mapper, the client and the cache of a cluster stay fresh, where the options leave
// them out: cluster.New(config, fresh.Cluster). The cluster's API reader is upstream's: it does not
// follow a kind that moves. Use NewClient where that matters.
func Cluster(options *cluster.Options) {
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

// logWhatDoesNotFollow writes one line if parts of a manager are not ours.
func logWhatDoesNotFollow(mgr manager.Manager) {
	var others []string
	if follow.Of(mgr.GetRESTMapper(), false) == nil {
		others = append(others, fmt.Sprintf("RESTMapper %T", mgr.GetRESTMapper()))
	}
	if _, ours := mgr.GetClient().(*followingClient); !ours {
		others = append(others, fmt.Sprintf("client %T", mgr.GetClient()))
	}
	if _, ours := mgr.GetCache().(*followingCache); !ours {
		others = append(others, fmt.Sprintf("cache %T", mgr.GetCache()))
	}
	if len(others) > 0 {
		log.Log.WithName("fresh").Info("The manager does not follow changes of the served APIs in full, because its options have parts "+
			"that do not, or a RESTMapper that does not say with Unwrap() meta.RESTMapper that it wraps one that does", "parts", others)
	}
}

// followingManager has an API reader that follows. Upstream's cluster makes its own by client.New,
// whatever NewClient is.
type followingManager struct {
	manager.Manager
	reader client.Reader
}

func (m *followingManager) GetAPIReader() client.Reader { return m.reader }
