// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// checkRedirect is the type of CheckRedirect in net/http's Client.
type checkRedirect func(req *http.Request, via []*http.Request) error

// sameHost refuses redirects to another host: client-go's transport adds the credentials to every request, redirected
// ones included. It asks next about all others, if that is not nil.
func sameHost(next checkRedirect) checkRedirect {
	return func(req *http.Request, via []*http.Request) error {
		from, to := via[0].URL, req.URL
		losesTLS := from.Scheme == "https" && to.Scheme != "https"
		if hostOf(to) != hostOf(from) || losesTLS {
			return errOtherHost
		}
		if next != nil {
			return next(req, via)
		}
		if len(via) >= maxRedirects {
			return errRedirects
		}
		return nil
	}
}

const maxRedirects = 10 // as net/http's default

var (
	errOtherHost = errors.New("the server redirects to another host, which is not followed")
	errRedirects = fmt.Errorf("stopped after %d redirects", maxRedirects)
)

// hostOf returns the host of a URL, with its port unless that is the default one. Upper and lower case are the same.
func hostOf(u *url.URL) string {
	port := u.Port()
	if port == "80" && u.Scheme == "http" || port == "443" && u.Scheme == "https" {
		port = ""
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), port)
}
