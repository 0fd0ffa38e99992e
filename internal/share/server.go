// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"reflect" //nolint:depguard // the types of client-go's transports have no other names
	"slices"
	"strings"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
)

// Server is the identity under which a bulk document may be offered to another
// mapper. Servers are equal if their mappers reach the same address with the
// same TLS settings and credentials through the same transport.
type Server struct {
	config    Key
	transport identity
}

func (s Server) known() bool { return s != Server{} }

// ServerOf returns the identity of the server that a mapper made of these
// arguments talks to.
func ServerOf(cfg *rest.Config, httpClient *http.Client) Server {
	id := identityOf(httpClient)
	if id == (identity{}) {
		return Server{}
	}
	return Server{config: configKey(cfg), transport: id}
}

// configKey hashes every setting that has a part in who answers, and to whom.
func configKey(cfg *rest.Config) Key {
	h := sha256.New()
	tls, as := cfg.TLSClientConfig, cfg.Impersonate
	fmt.Fprintf(h, "%q %q %q %q %q %q ", cfg.Host, cfg.APIPath, cfg.Username, cfg.Password, cfg.BearerToken, cfg.BearerTokenFile)
	fmt.Fprintf(h, "%t %q %q %q %q %x %x %x ", tls.Insecure, tls.ServerName, tls.CertFile, tls.KeyFile, tls.CAFile, tls.CertData, tls.KeyData, tls.CAData)
	fmt.Fprintf(h, "%q %q %q ", as.UserName, as.UID, as.Groups)
	for _, key := range slices.Sorted(maps.Keys(as.Extra)) {
		fmt.Fprintf(h, "%q %q ", key, as.Extra[key])
	}
	if cfg.ExecProvider != nil {
		fmt.Fprintf(h, "%q %q ", cfg.ExecProvider.Command, cfg.ExecProvider.Args)
	}
	if cfg.AuthProvider != nil {
		fmt.Fprintf(h, "%q ", cfg.AuthProvider.Name)
	}
	return Key(h.Sum(nil))
}

// baseTransport looks through the wrappers that client-go itself puts around a
// transport, which leave alone where a request goes. It returns nil for a transport
// that it cannot see the bottom of: anybody else's wrapper, one that a rest.Config
// has as WrapTransport say, may lead requests to another server.
func baseTransport(rt http.RoundTripper) *http.Transport {
	if rt == nil {
		rt = http.DefaultTransport
	}
	for {
		if t, ok := rt.(*http.Transport); ok {
			return t
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok || !fromClientGo(rt) {
			return nil
		}
		rt = wrapper.WrappedRoundTripper()
	}
}

func fromClientGo(rt http.RoundTripper) bool {
	// By reflection, because client-go exports none of these types.
	t := reflect.TypeOf(rt)
	return t.Kind() == reflect.Pointer && strings.HasSuffix(t.Elem().PkgPath(), "k8s.io/client-go/transport")
}
