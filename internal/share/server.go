// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/client-go/rest"
)

// Server is a caller of a server, as whom a bulk document was read, and to whom it
// may be offered again. The zero value is nobody, with whom nothing is shared.
type Server struct {
	key   Key
	named bool
}

func (s Server) known() bool { return s != Server{} }

// Named reports whether the user has said who the caller is. Then nobody but the
// user knows which credentials are its own.
func (s Server) Named() bool { return s.named }

// ServerOf returns as whom a mapper that is made of these arguments calls which
// server. It is nobody unless that is certain: sharedAs says it, or the transport
// is client-go's own for cfg. Nothing else tells where a request goes and whose
// credentials it carries: a wrapper may add any, and functions can't be compared.
func ServerOf(cfg *rest.Config, httpClient *http.Client, sharedAs string) Server {
	switch {
	case sharedAs != "":
		return Server{key: configKey(cfg, sharedAs), named: true}
	case madeOf(cfg, httpClient):
		return Server{key: configKey(cfg, "")}
	default:
		return Server{}
	}
}

// configKey hashes sharedAs and every setting that has a part in who answers, and to whom.
func configKey(cfg *rest.Config, sharedAs string) Key {
	h := sha256.New()
	tls, as := cfg.TLSClientConfig, cfg.Impersonate
	fmt.Fprintf(h, "%q %q %q %q %q %q %q ", sharedAs, cfg.Host, cfg.APIPath, cfg.Username, cfg.Password, cfg.BearerToken, cfg.BearerTokenFile)
	fmt.Fprintf(h, "%t %q %q ", tls.Insecure, tls.ServerName, tls.NextProtos)
	fmt.Fprintf(h, "%q %q %q %x %x %x ", tls.CertFile, tls.KeyFile, tls.CAFile, tls.CertData, tls.KeyData, tls.CAData)
	fmt.Fprintf(h, "%q %q %q %q ", as.UserName, as.UID, as.Groups, as.Extra) // fmt sorts maps
	if cfg.ExecProvider != nil {
		fmt.Fprintf(h, "exec %q ", dump.Pretty(cfg.ExecProvider)) // as client-go tells plugins apart
	}
	if cfg.AuthProvider != nil {
		fmt.Fprintf(h, "auth %q %q ", cfg.AuthProvider.Name, cfg.AuthProvider.Config)
	}
	return Key(h.Sum(nil))
}
