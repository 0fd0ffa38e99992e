// SPDX-License-Identifier: Apache-2.0

package follow

import (
	"cmp"
	"net/http"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
)

// Defaults fills in what each of controller-runtime's constructors would make for itself, because there will be several
// clients or caches. It returns the config with a user agent.
func Defaults(config *rest.Config, httpClient **http.Client, s **runtime.Scheme) (named *rest.Config, err error) {
	named = rest.CopyConfig(config)
	named.UserAgent = cmp.Or(named.UserAgent, rest.DefaultKubernetesUserAgent())
	if *httpClient == nil {
		*httpClient, err = rest.HTTPClientFor(named)
	}
	*s = cmp.Or(*s, scheme.Scheme)
	return named, err
}
