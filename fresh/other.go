// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"net/http"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
)

// In a patched controller-runtime this file has other contents: there, upstream's constructors have other names.

// newOther makes a client whose mapper cannot be followed.
func newOther(config *rest.Config, options client.Options) (client.Client, error) {
	return client.New(config, options)
}

func newOtherWithWatch(config *rest.Config, options client.Options) (client.WithWatch, error) {
	return client.NewWithWatch(config, options)
}

// mapperOf makes the mapper of a client that was given none. own reports whether its HTTP client was
// made from config.
func mapperOf(config *rest.Config, httpClient *http.Client, _ bool) (meta.RESTMapper, error) {
	return apiutil.NewDynamicRESTMapper(config, httpClient)
}
