// SPDX-License-Identifier: Apache-2.0

package tree

const stock = "package apiutil\n\nfunc NewDynamicRESTMapper() {}\n\nfunc hidden() {}\n"

// stockClient has the shape of the client's cache.
const stockClient = `package client

type clientRestResources struct {
	mapper meta.RESTMapper
	byKind map[any]*resourceMeta
	mu     sync.RWMutex
}

func (c *clientRestResources) getResource(obj any) (*resourceMeta, error) {
	c.mu.RLock()
	r, known := c.byKind[obj]
	c.mu.RUnlock()
	if known {
		return r, nil
	}
	var err error
	c.mu.Lock()
	defer c.mu.Unlock()
	r, err = c.newResource(obj)
	if err != nil {
		return nil, err
	}
	c.byKind[obj] = r
	return r, err
}
`

// What else is edited, in small.
const (
	stockFields = `package client

type client struct {
	typedClient        typedClient
	unstructuredClient unstructuredClient
	metadataClient     metadataClient
}

func newClient(config *rest.Config, options Options) *client {
	var err error
	if options.HTTPClient == nil {
		options.HTTPClient, err = rest.HTTPClientFor(config)
	}
	if options.Mapper == nil {
		options.Mapper, err = apiutil.NewDynamicRESTMapper(config, options.HTTPClient)
	}
	resources := &clientRestResources{
		mapper: options.Mapper,
	}
	return &client{
		typedClient:        typedClient{resources: resources},
		unstructuredClient: unstructuredClient{resources: resources},
		metadataClient:     metadataClient{restMapper: options.Mapper},
	}
}

func (c *client) IsObjectNamespaced(obj runtime.Object) (bool, error) {
	return apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)
}
`
	stockNamespaced = `package client

import (
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

func (n *namespacedClient) List(ctx context.Context, obj ObjectList, opts ...ListOption) error {
	return n.client.List(ctx, obj, opts...)
}

func (n *namespacedClient) Apply(ctx context.Context, gvk schema.GroupVersionKind) error {
	_, err := apiutil.IsGVKNamespaced(gvk, n.RESTMapper())
	return err
}
`
	stockOwner = `package handler

func TypedEnqueueRequestForOwner[object client.Object](mapper meta.RESTMapper) TypedEventHandler[object] {
	return &enqueueRequestForOwner[object]{
		mapper: mapper,
	}
}
`
	stockWatch = `package client

func (w *watchingClient) Watch(list ObjectList) error {
	return w.base.typedClient.resources.watch(list)
}
`
	stockInformers = `package internal

func NewInformers(options *InformersOpts) *Informers {
	return &Informers{
		mapper: options.Mapper,
	}
}

func (ip *Informers) add(gvk schema.GroupVersionKind, obj runtime.Object) {
	listWatcher, err := ip.makeListWatcher(gvk, obj)
	listWatcher.ListWithContextFunc(ctx, opts)
	listWatcher.WatchFuncWithContext(ctx, opts)
}

func (ip *Informers) makeListWatcher(gvk schema.GroupVersionKind, obj runtime.Object) (*cache.ListWatch, error) {
	return nil, nil
}
`
	stockReader = `package internal

func (c *CacheReader) Get(key client.ObjectKey) {
	if c.scopeName == apimeta.RESTScopeNameRoot {
		key.Namespace = ""
	}
	storeKey := objectKeyToStoreKey(key)
}
`
	stockNamespaces = "package cache\n\nfunc newMultiNamespaceCache() Cache { return &multiNamespaceCache{} }\n"
)

// stockRequests has the shape of one of the types that send requests.
func stockRequests(receiver, typeName string) File {
	return File{Data: []byte("package client\n\nfunc (" + receiver + " *" + typeName +
		") Create(ctx context.Context, obj Object, opts ...CreateOption) error {\n\treturn nil\n}\n")}
}

// upstream is a controller-runtime in small.
func upstream() Files {
	return Files{
		"go.mod":                              {Data: []byte("module sigs.k8s.io/controller-runtime\n")},
		"hack/run.sh":                         {Data: []byte("#!/bin/sh\n"), Exec: true},
		"pkg/client/client.go":                {Data: []byte(stockFields)},
		"pkg/client/watch.go":                 {Data: []byte(stockWatch)},
		"pkg/client/typed_client.go":          stockRequests("c", "typedClient"),
		"pkg/client/unstructured_client.go":   stockRequests("uc", "unstructuredClient"),
		"pkg/client/metadata_client.go":       stockRequests("mc", "metadataClient"),
		namespacedFile:                        {Data: []byte(stockNamespaced)},
		ownerFile:                             {Data: []byte(stockOwner)},
		informersFile:                         {Data: []byte(stockInformers)},
		readerFile:                            {Data: []byte(stockReader)},
		namespaceFile:                         {Data: []byte(stockNamespaces)},
		clientFile:                            {Data: []byte(stockClient)},
		"pkg/client/apiutil/apimachinery.go":  {Data: []byte("package apiutil\n")},
		"pkg/client/apiutil/restmapper.go":    {Data: []byte(stock)},
		"pkg/client/apiutil/errors.go":        {Data: []byte("package apiutil\n\ntype ErrResourceDiscoveryFailed map[string]error\n")},
		"pkg/client/apiutil/testdata/crd.yml": {Data: []byte("kind: CRD\n")},

		"pkg/client/apiutil/restmapper_test.go":    {Data: []byte("package apiutil_test\n")},
		"pkg/client/apiutil/restmapper_wb_test.go": {Data: []byte("package apiutil\n\nfunc TestHidden() {}\n")},
	}
}
