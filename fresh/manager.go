// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"cmp"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/cluster"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/freshmapper/freshmapper/apiutil"
)

// NewManager is ctrl.NewManager for a manager whose mapper, client, cache and API reader stay fresh. It
// fills in MapperProvider, NewClient and NewCache of the options where they are nil, and changes
// nothing else. The manager's GetRESTMapper returns the mapper itself, a *apiutil.DynamicRESTMapper
// unless MapperProvider makes another; add it to the manager if its options need Start.
func NewManager(config *rest.Config, options manager.Options) (manager.Manager, error) {
	if options.MapperProvider == nil {
		options.MapperProvider = apiutil.NewDynamicRESTMapper
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

// followingManager has an API reader that follows. Upstream's cluster makes its own by client.New,
// whatever NewClient is.
type followingManager struct {
	manager.Manager
	reader client.Reader
}

func (m *followingManager) GetAPIReader() client.Reader { return m.reader }
