// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// echo makes a fault that answers with what say makes of the credentials that were sent, and
// repeats them in a header that client-go would log.
func echo(code int, contentType string, say func(sent string) string) fakeapi.Fault {
	return fakeapi.Func("echo", func(req *http.Request) (*http.Response, error) {
		sent := cmp.Or(req.Header.Get("X-Api-Key"), req.Header.Get("Cookie"), req.Header.Get("Authorization"))
		body := say(sent)
		return &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {contentType}, "Warning": {`299 - "` + sent + `"`}},
			Body:   io.NopCloser(strings.NewReader(body)), ContentLength: int64(len(body)),
		}, nil
	})
}

func asStatus(message string) string {
	body, _ := json.Marshal(metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusFailure, Message: message,
		Reason: metav1.StatusReasonForbidden,
	})
	return string(body)
}

// A caller has credentials, which must not be shown.
type caller struct {
	configure func(cfg *rest.Config)                         // nil: without credentials
	transport func(next http.RoundTripper) http.RoundTripper // nil: as rest.HTTPClientFor makes it
	secrets   []string
	opaque    bool // nothing in an error of a transport tells that this is a secret
}

func (c caller) mapper(server *fakeapi.Server) *apiutil.DynamicRESTMapper {
	cfg := server.Config()
	cfg.BearerToken = ""
	if c.configure != nil {
		c.configure(cfg)
	}
	client := must(rest.HTTPClientFor(cfg))
	if c.transport != nil {
		client = &http.Client{Transport: c.transport(cfg.Transport)}
	}
	return must(apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{}))
}

// callers are the ways in which credentials get into requests.
func callers(t *testing.T) map[string]caller {
	const token, user, password = "eyJhbGciOiJSUzI1NiJ9.of-a-file.signature", "sent-user", `sent"pass\word`
	basic := []string{user, base64.StdEncoding.EncodeToString([]byte(user + ":" + password)), `pass\word`, `pass\\word`}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	adding := func(name, value string) func(http.RoundTripper) http.RoundTripper {
		return func(next http.RoundTripper) http.RoundTripper {
			return through(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set(name, value)
				return next.RoundTrip(req)
			})
		}
	}
	inURL := "http://" + user + ":" + url.QueryEscape(password) + "@fake.invalid"
	withPassword := adding("Authorization", "Basic "+basic[1])
	plain := func(next http.RoundTripper) http.RoundTripper { return next }
	return map[string]caller{
		"token":                   {configure: func(cfg *rest.Config) { cfg.BearerToken = token }, secrets: []string{token}},
		"token file":              {configure: func(cfg *rest.Config) { cfg.BearerTokenFile = file }, secrets: []string{token}},
		"password":                {configure: func(cfg *rest.Config) { cfg.Username, cfg.Password = user, password }, secrets: basic},
		"password in the URL":     {configure: func(cfg *rest.Config) { cfg.Host = inURL }, transport: plain, secrets: basic},
		"password of a transport": {transport: withPassword, secrets: basic},
		"token of a transport":    {transport: adding("Authorization", "Bearer "+fakeapi.Token), secrets: []string{fakeapi.Token}, opaque: true},
		"key of a gateway":        {transport: adding("X-Api-Key", "key-of-a-gateway"), secrets: []string{"key-of-a-gateway"}, opaque: true},
		"cookie of a session":     {transport: adding("Cookie", "a=b; session=cookie-of-a-session"), secrets: []string{"cookie-of-a-session"}, opaque: true},
	}
}

// sayings are what a server makes of the credentials that it repeats.
func sayings() map[string]func(sent string) string {
	bare := func(sent string) string { _, after, _ := strings.Cut(sent, " "); return after }
	decoded := func(sent string) string {
		if pair, err := base64.StdEncoding.DecodeString(bare(sent)); err == nil {
			return string(pair)
		}
		return bare(sent)
	}
	return map[string]func(string) string{
		"whole": func(sent string) string { return sent + " \x1b[2J\nI1122 forged" },
		"long":  func(sent string) string { return strings.Repeat(sent+" ", 1<<10) },
		"bare":  bare, "decoded": decoded, "quoted": func(sent string) string { return strconv.Quote(decoded(sent)) },
	}
}

// echoes are answers that repeat what was sent, and other ways to fail.
func echoes() map[string]fakeapi.Fault {
	const jsonType = "application/json"
	inJSON := func(format string) func(string) string {
		return func(sent string) string {
			text, _ := json.Marshal(sent)
			return strings.ReplaceAll(format, "%", string(text))
		}
	}
	faults := map[string]fakeapi.Fault{
		"refused": fakeapi.Refused(), // with a URL in the error
		"no HTTP": fakeapi.Func("no HTTP", func(req *http.Request) (*http.Response, error) { // as of net/http
			return nil, errors.New("malformed MIME header line: " + req.Header.Get("Authorization"))
		}),
		"a redirect": fakeapi.Func("redirect", func(req *http.Request) (*http.Response, error) {
			sent := strings.Fields("none " + req.Header.Get("Authorization"))
			return &http.Response{
				StatusCode: 302, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
				Header: http.Header{"Location": {"http://" + strings.TrimRight(sent[len(sent)-1], "=") + ".invalid/apis"}},
			}, nil
		}),
	}
	for said, say := range sayings() {
		for form, answer := range map[string]struct {
			code int
			kind string
			body func(string) string
		}{
			"a Status":        {403, jsonType, func(sent string) string { return asStatus("refused: " + sent) }},
			"a page":          {401, "text/html", func(sent string) string { return "<p>" + sent }},
			"a text with 200": {200, jsonType, func(sent string) string { return sent + " \x1b[2J\nI1122 forged" }},
			"a kind":          {200, jsonType, inJSON(`{"kind":%,"apiVersion":%}`)},
			"a group-version": {200, jsonType, inJSON(`{"kind":"APIResourceList","groupVersion":%}`)},
			"a group":         {200, jsonType, inJSON(`{"kind":"APIGroup","name":%}`)},
		} {
			faults[form+", "+said] = echo(answer.code, answer.kind, func(sent string) string { return answer.body(say(sent)) })
		}
	}
	return faults
}

// A server, or a proxy before it, may repeat in its answer what it was sent: all of the
// header, the credentials in it, or a password that it has decoded. However a request fails,
// its URL is not shown. No text that it sends is long, or moves a cursor, and none is logged.
func TestErrorsDoNotShowCredentials(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer klog.CaptureState().Restore()
	klog.SetLogger(funcr.New(func(_, args string) { t.Errorf("logged: %s", args) }, funcr.Options{}))
	for form, fault := range echoes() {
		for name, caller := range callers(t) {
			if _, said, repeats := strings.Cut(form, ", "); caller.opaque && (repeats && said != "whole" || form == "a redirect") {
				continue // nobody can tell that this is a secret
			}
			t.Run(form+"/"+name, func(t *testing.T) {
				server := newServer(fakeapi.Aggregated())
				m := caller.mapper(server)
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, caller.secrets...)
				server.ClearFaults()
				wantServed(t, m, fooKind)
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, caller.secrets...)
			})
		}
	}
}

// wantSilence looks up something that does not exist, and searches the errors for
// secrets.
func wantSilence(t *testing.T, m meta.RESTMapper, secrets ...string) {
	t.Helper()
	_, versioned := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"}, "v1")
	_, anyVersion := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"})
	_, anyGroup := m.KindFor(schema.GroupVersionResource{Resource: "absents"})
	for _, err := range []error{versioned, anyVersion, anyGroup} {
		if text := fmt.Sprint(err); err == nil || meta.IsNoMatchError(err) || strings.ContainsAny(text, "\x1b\n") || len(text) > 2500 {
			t.Errorf("got %d bytes: %q; want an error on one line, which is short and no NoMatch", len(text), text)
		}
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			for _, secret := range secrets {
				if strings.Contains(strings.ToLower(cause.Error()), strings.ToLower(strings.TrimRight(secret, "="))) {
					t.Errorf("the secret %q is in: %v", secret, cause)
				}
			}
		}
	}
}

// F8: a server that serves a kind with the name of the token gets it into no error and no page.
func TestNamesDoNotRepeatTheToken(t *testing.T) {
	const token = "Opaque-token-0123456789"
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		server := newServer(forms)
		m := caller{configure: func(cfg *rest.Config) { cfg.BearerToken = token }}.mapper(server)
		page, answer := m.DebugHandler(), httptest.NewRecorder()
		wantServed(t, m, fooKind)
		serve(server, newKind.GroupVersion().WithKind(token))
		err, refreshed := lookUp(m, newKind), m.Refresh(context.Background(), newKind.Group)
		page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/?format=json", nil))
		text := fmt.Sprint(err, refreshed, m.Status(), answer.Body)
		if err == nil || meta.IsNoMatchError(err) || strings.Contains(strings.ToLower(text), "0123456789") {
			t.Errorf("%v; want an error that is no NoMatch, and no token in it or in: %s", err, text)
		}
		wantServed(t, m, fooKind)
		for _, password := range []string{"404", "served", "e"} { // which are in the words that say that a kind is absent
			m := caller{configure: func(cfg *rest.Config) { cfg.Username, cfg.Password = "me", password }}.mapper(server)
			wantAbsent(t, m, lateKind)
		}
	})
}

// A redirect is followed on the same host, and never to another one: client-go's
// transport would send the credentials along. A lookup with a version goes on to the
// version's own path.
func TestRedirectsStayOnTheHost(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const followed, refused = "GET /apis  v2+protobuf 200", "GET /apis/example.com/v1  legacy 200"
	for to, next := range map[string]string{
		"http://fake.invalid/apis?moved": followed, "http://elsewhere.invalid/apis": refused, "http://fake.invalid:81/apis": refused, "//elsewhere.invalid/apis": refused,
	} {
		server := newServer(fakeapi.Aggregated())
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		server.SetFault(fakeapi.At("/apis"), fakeapi.Times(1, fakeapi.Func("Redirect", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 302, Body: http.NoBody, Header: http.Header{"Location": {to}}}, nil
		})))
		wantServed(t, m, fooKind)
		requests := server.Requests()
		if got, want := textOfAll(requests, fakeapi.Request.String), "GET /api  v2+protobuf 200; GET /apis  Redirect 302; "+next; got != want {
			t.Errorf("redirected to %s, the mapper sent %s; want %s", to, got, want)
		}
		if i := slices.IndexFunc(requests, func(r fakeapi.Request) bool { return r.Host != "fake.invalid" }); i >= 0 {
			t.Errorf("redirected to %s: a request to %s with Authorization %q", to, requests[i].Host, requests[i].Authorization)
		}
	}
}

// An error of a transport may have credentials in it that it sent elsewhere. What else it says
// is shown.
func TestErrorsOfTransportsDoNotShowCredentials(t *testing.T) {
	const secret = "eyJhbGciOiJSUzI1NiJ9"
	for _, text := range []string{
		`Post "https://me:` + secret + `@login.invalid/token": connection refused`,
		`Post "https://login.invalid/token?key=` + secret + `&x=y": connection refused`,
		`Post https://login.invalid/token?key=` + secret + ` connection refused`,
		`cannot fetch token: 400 Response: {"access_token": "` + secret + `"}: connection refused`,
		`cannot fetch token: "{\"refresh_token\":\"` + secret + `\"}": connection refused`,
		`cannot fetch token: client_secret=` + secret + `&grant=code: connection refused`,
		`exec: Bearer ` + secret + `: connection refused`,
	} {
		m := newMapperThrough(t, newServer(fakeapi.Aggregated()), through(func(*http.Request) (*http.Response, error) { return nil, errors.New(text) }), apiutil.DynamicRESTMapperOptions{})
		wantSilence(t, m, secret)
		if err := lookUp(m, fooKind); err == nil || !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("of the transport's %s: got %v; want that the connection was refused", text, err)
		}
	}
}
