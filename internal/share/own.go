// SPDX-License-Identifier: Apache-2.0

package share

import (
	"net/http"
	"reflect" //nolint:depguard // the types of client-go's transports have no other names
	"strings"
	"sync"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
)

// madeOf reports whether httpClient sends requests exactly like a client that
// rest.HTTPClientFor makes from cfg. It compares with a transport that client-go makes
// from cfg now: the wrappers must have the same types and settings, around the same base.
// client-go keeps one base for all configurations with the same TLS settings.
//
// Settings that can't be compared must be absent: functions, plugins that a program has
// registered, and cookies.
func madeOf(cfg *rest.Config, httpClient *http.Client) bool {
	if cfg.Transport != nil || cfg.WrapTransport != nil || cfg.Dial != nil || cfg.Proxy != nil || cfg.AuthProvider != nil ||
		httpClient.Jar != nil || httpClient.CheckRedirect != nil {
		return false
	}
	rt := httpClient.Transport
	if rt == nil {
		rt = http.DefaultTransport
	}
	if !looksLike(cfg, rt) {
		return false
	}
	own, err := rest.TransportFor(cfg)
	return err == nil && sameTransport(rt, own)
}

// looksLike reports whether rt can be client-go's transport for cfg. Without this check
// client-go would make a transport that nobody needs, keep it for ever, and watch the
// files of a certificate.
func looksLike(cfg *rest.Config, rt http.RoundTripper) bool {
	for {
		if t, ok := rt.(*http.Transport); ok {
			return looksLikeBase(cfg, t)
		}
		wrapper, ok := rt.(utilnet.RoundTripperWrapper)
		if !ok || !fromClientGo(rt) {
			return false
		}
		rt = wrapper.WrappedRoundTripper()
	}
}

// defaultTransport is the original http.DefaultTransport. A program may replace that with
// a transport that leads anywhere.
var defaultTransport = http.DefaultTransport

func looksLikeBase(cfg *rest.Config, t *http.Transport) bool {
	if t == http.DefaultTransport || t == defaultTransport {
		tls, err := rest.TLSConfigFor(cfg)
		return err == nil && tls == nil && http.DefaultTransport == defaultTransport
	}
	return t.MaxIdleConnsPerHost == idleConnections()
}

// idleConnections returns a setting in which client-go's transports differ from most
// others.
var idleConnections = sync.OnceValue(func() int {
	rt, err := transport.New(&transport.Config{Proxy: http.ProxyFromEnvironment}) // with a function, so that it is not kept
	if t, ok := rt.(*http.Transport); ok && err == nil {
		return t.MaxIdleConnsPerHost
	}
	return -1
})

func fromClientGo(rt http.RoundTripper) bool {
	// By reflection, because client-go exports none of these types.
	t := reflect.TypeOf(rt)
	if t.Kind() != reflect.Pointer {
		return false
	}
	path := t.Elem().PkgPath()
	return strings.HasSuffix(path, "k8s.io/client-go/transport") || strings.HasSuffix(path, "k8s.io/client-go/plugin/pkg/client/auth/exec")
}

// sameTransport reports whether rt and own, which is client-go's, treat requests alike
// and send them through the same base.
func sameTransport(rt, own http.RoundTripper) bool {
	for rt != own {
		if reflect.TypeOf(rt) != reflect.TypeOf(own) || !fromClientGo(own) {
			return false
		}
		if !sameSettings(reflect.ValueOf(rt).Elem(), reflect.ValueOf(own).Elem()) {
			return false
		}
		next, ok := rt.(utilnet.RoundTripperWrapper)
		ownNext, ownOK := own.(utilnet.RoundTripperWrapper)
		if !ok || !ownOK {
			return false
		}
		rt, own = next.WrappedRoundTripper(), ownNext.WrappedRoundTripper()
	}
	return true
}

var roundTripperType = reflect.TypeFor[http.RoundTripper]()

// sameSettings reports whether all fields of two structs of the same type are equal,
// except the transports that they wrap. It reads only fields that are never written once
// the struct is in use.
func sameSettings(a, b reflect.Value) bool {
	for i := range a.NumField() {
		if a.Type().Field(i).Type != roundTripperType && !sameValue(a.Field(i), b.Field(i)) {
			return false
		}
	}
	return true
}

// sameValue reports whether two settings of the same type are equal. It returns false for
// kinds of values that no setting has today, such as functions.
func sameValue(a, b reflect.Value) bool {
	switch a.Kind() {
	case reflect.String, reflect.Bool, reflect.Int, reflect.Int64, reflect.Pointer:
		return a.Equal(b)
	case reflect.Struct:
		return sameSettings(a, b)
	case reflect.Interface:
		return sameSource(a.Elem(), b.Elem())
	case reflect.Slice:
		return sameElements(a, b)
	case reflect.Map:
		return sameEntries(a, b)
	default:
		return false
	}
}

func sameElements(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for i := range a.Len() {
		if !sameValue(a.Index(i), b.Index(i)) {
			return false
		}
	}
	return true
}

func sameEntries(a, b reflect.Value) bool {
	if a.Len() != b.Len() {
		return false
	}
	for entry := a.MapRange(); entry.Next(); {
		other := b.MapIndex(entry.Key())
		if !other.IsValid() || !sameValue(entry.Value(), other) {
			return false
		}
	}
	return true
}

// sameSource reports whether two sources of tokens are one, or read the same file. Each
// transport has its own source, whose token changes in use, so only the path of the file
// is compared.
func sameSource(a, b reflect.Value) bool {
	if !a.IsValid() || !b.IsValid() {
		return a.IsValid() == b.IsValid()
	}
	if a.Type() != b.Type() || a.Kind() != reflect.Pointer {
		return false
	}
	if a.Equal(b) {
		return true
	}
	a, b = a.Elem(), b.Elem()
	switch a.Type().Name() {
	case "cachingTokenSource":
		a, b = a.FieldByName("base"), b.FieldByName("base")
		return a.IsValid() && a.Kind() == reflect.Interface && sameSource(a.Elem(), b.Elem())
	case "fileTokenSource":
		return sameSettings(a, b)
	default:
		return false
	}
}
