// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"fmt"
	"net/http"

	"k8s.io/apimachinery/pkg/util/dump"
	"k8s.io/client-go/rest"
)

// Server identifies a caller of a server. A bulk document that was read by a caller may
// be offered to it again. The zero value is an unknown caller, which shares nothing.
type Server struct {
	key   Key
	named bool
}

func (s Server) known() bool { return s != Server{} }

// Named reports whether the user has named the caller. Then only the user knows which
// credentials the caller has.
func (s Server) Named() bool { return s.named }

// ServerOf returns the caller for which a mapper with these arguments reads. It returns
// the zero value unless the caller is certain: sharedAs names it, or client-go made the
// transport from cfg. Any other transport may send requests anywhere, with any
// credentials.
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

// configKey hashes sharedAs and every setting that identifies the server or the caller.
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
