// SPDX-License-Identifier: Apache-2.0

//go:build go1.24

package share

import (
	"net/http"
	"weak"
)

// identity tells transports apart without keeping them alive.
type identity struct {
	transport weak.Pointer[http.Transport]
	client    weak.Pointer[http.Client] // where the transport is of an unknown type
}

func identityOf(httpClient *http.Client) identity {
	if t := baseTransport(httpClient.Transport); t != nil {
		return identity{transport: weak.Make(t)}
	}
	return identity{client: weak.Make(httpClient)}
}
