// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"errors"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
)

// DynamicRESTMapperOptions are the settings of a DynamicRESTMapper. The zero
// value gives the mapper that NewDynamicRESTMapper returns.
type DynamicRESTMapperOptions struct {
	// RequestTimeout bounds one discovery request, with the retries that client-go
	// makes of its own accord when the server asks for them with Retry-After.
	// Defaults to 30 seconds.
	RequestTimeout time.Duration

	// MaxResponseBytes bounds the body of one discovery response, after
	// decompression. A larger one is an error. Defaults to 64 MiB.
	MaxResponseBytes int64
}

const (
	defaultRequestTimeout   = 30 * time.Second
	defaultMaxResponseBytes = 64 << 20
)

// defaulted returns the options with defaults for what is zero, or an error that
// names the option that cannot be.
func (o DynamicRESTMapperOptions) defaulted() (DynamicRESTMapperOptions, error) {
	switch {
	case o.RequestTimeout < 0:
		return o, errors.New("RequestTimeout must not be negative")
	case o.MaxResponseBytes < 0:
		return o, errors.New("MaxResponseBytes must not be negative")
	}
	if o.RequestTimeout == 0 {
		o.RequestTimeout = defaultRequestTimeout
	}
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = defaultMaxResponseBytes
	}
	return o, nil
}

// DynamicRESTMapperProvider returns a function that makes mappers with opts. It
// has the type of MapperProvider in the options of controller-runtime's manager,
// cluster and client.
func DynamicRESTMapperProvider(opts DynamicRESTMapperOptions) func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
	return func(cfg *rest.Config, httpClient *http.Client) (meta.RESTMapper, error) {
		return NewDynamicRESTMapperWithOptions(cfg, httpClient, opts)
	}
}
