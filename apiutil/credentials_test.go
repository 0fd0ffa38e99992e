// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"
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

type caller func(server *fakeapi.Server) (cfg *rest.Config, client *http.Client, secrets []string)

// callers are the ways in which credentials get into requests, each with what must not be
// shown of them. What a transport adds is known from the request that was sent.
func callers(t *testing.T) map[string]caller {
	const token, user, password = "eyJhbGciOiJSUzI1NiJ9.of-a-file.signature", "sent-user", `sent"pass\word`
	secrets := []string{user, base64.StdEncoding.EncodeToString([]byte(user + ":" + password)), `pass\word`, `pass\\word`}
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	withHeader := func(name, prefix, secret string) caller {
		return func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			cfg := server.Config()
			return cfg, &http.Client{Transport: through(func(req *http.Request) (*http.Response, error) {
				req = req.Clone(req.Context())
				req.Header.Set(name, prefix+secret)
				return cfg.Transport.RoundTrip(req)
			})}, []string{secret}
		}
	}
	return map[string]caller{
		"key of a gateway":    withHeader("X-Api-Key", "", "key-of-a-gateway"),
		"cookie of a session": withHeader("Cookie", "a=b; session=", "cookie-of-a-session"),
		"token": func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			return server.Config(), server.Client(), []string{fakeapi.Token}
		},
		"token file": func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			cfg := server.Config()
			cfg.BearerToken, cfg.BearerTokenFile = "", file
			client, err := rest.HTTPClientFor(cfg)
			if err != nil {
				t.Fatal(err)
			}
			return cfg, client, []string{token}
		},
		"password": func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			cfg := server.Config()
			cfg.BearerToken, cfg.Username, cfg.Password = "", user, password
			return cfg, &http.Client{Transport: transport.NewBasicAuthRoundTripper(user, password, cfg.Transport)}, secrets
		},
		"rotated token": func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			cfg := server.Config()
			cfg.BearerToken = "an-older-token" // what the transport sends is another one
			return cfg, server.Client(), []string{fakeapi.Token}
		},
		"password in the URL": func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			cfg := server.Config()
			cfg.BearerToken, cfg.Host = "", "http://"+user+":"+url.QueryEscape(password)+"@fake.invalid"
			return cfg, &http.Client{Transport: cfg.Transport}, secrets
		},
		"password of a transport": func(server *fakeapi.Server) (*rest.Config, *http.Client, []string) {
			cfg := server.Config()
			cfg.BearerToken = ""
			return cfg, &http.Client{Transport: transport.NewBasicAuthRoundTripper(user, password, cfg.Transport)}, secrets
		},
	}
}

// A server, or a proxy before it, may repeat in its answer what it was sent: all of the
// header, the credentials in it, or a password that it has decoded. However a request fails,
// its URL is not shown. No text that it sends is long, or moves a cursor, and none is logged.
func TestErrorsDoNotShowCredentials(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	defer klog.CaptureState().Restore()
	klog.SetLogger(funcr.New(func(_, args string) { t.Errorf("logged: %s", args) }, funcr.Options{}))
	whole := func(sent string) string { return sent + " \x1b[2J\nI1122 forged" }
	long := func(sent string) string { return strings.Repeat(sent+" ", 1<<10) }
	bare := func(sent string) string { _, after, _ := strings.Cut(sent, " "); return after }
	decoded := func(sent string) string {
		if pair, err := base64.StdEncoding.DecodeString(bare(sent)); err == nil {
			return string(pair)
		}
		return bare(sent)
	}
	quoted := func(sent string) string { return strconv.Quote(decoded(sent)) }
	const jsonType = "application/json"
	inJSON := func(format string) func(string) string {
		return func(sent string) string {
			text, _ := json.Marshal(sent)
			return strings.ReplaceAll(format, "%", string(text))
		}
	}
	forms := map[string]struct {
		code int
		kind string
		body func(string) string
	}{
		"a Status":          {403, jsonType, func(sent string) string { return asStatus("refused: " + sent) }},
		"a Status with 500": {500, jsonType, asStatus},
		"a page":            {401, "text/html", func(sent string) string { return "<p>" + sent }},
		"a text with 200":   {200, jsonType, whole},
		"a kind":            {200, jsonType, inJSON(`{"kind":%,"apiVersion":%}`)},
		"a wrong type":      {200, jsonType, inJSON(`{"items":%}`)},
		"a group-version":   {200, jsonType, inJSON(`{"kind":"APIResourceList","groupVersion":%}`)},
		"a group":           {200, jsonType, inJSON(`{"kind":"APIGroup","name":%}`)},
	}
	sayings := map[string]func(string) string{"whole": whole, "long": long, "bare": bare, "decoded": decoded, "quoted": quoted}
	for name, say := range sayings {
		faults := map[string]fakeapi.Fault{}
		for form, answer := range forms {
			faults[form] = echo(answer.code, answer.kind, func(sent string) string { return answer.body(say(sent)) })
		}
		if name == "whole" {
			faults["no HTTP"] = fakeapi.Func("no HTTP", func(req *http.Request) (*http.Response, error) { // as of net/http
				return nil, errors.New("malformed MIME header line: " + req.Header.Get("Authorization"))
			})
			faults["a redirect"] = redirectEcho()
			for _, fault := range []fakeapi.Fault{
				fakeapi.Refused(), fakeapi.ResetMidBody(), fakeapi.Truncated(), fakeapi.Timeout(), fakeapi.Unexpected304(),
				fakeapi.Status(503, 0), fakeapi.StatusText(502), fakeapi.LoginPage(), fakeapi.Huge(1 << 20),
			} {
				faults[fault.String()] = fault
			}
		}
		for form, fault := range faults {
			for caller, of := range callers(t) {
				bare := []string{"rotated token", "key of a gateway", "cookie of a session"}
				if slices.Contains(bare, caller) && (name != "whole" || form == "a redirect") {
					continue // nobody can tell that this is a token
				}
				t.Run(name+"/"+form+"/"+caller, func(t *testing.T) {
					server := newServer(fakeapi.Aggregated())
					cfg, client, secrets := of(server)
					opts := apiutil.DynamicRESTMapperOptions{MaxResponseBytes: 64 << 10}
					hangs := form == fakeapi.Timeout().String()
					if hangs {
						opts.RequestTimeout = 10 * time.Millisecond
					}
					m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, opts)
					if err != nil {
						t.Fatal(err)
					}
					server.SetFault(fakeapi.All(), fault)
					wantSilence(t, m, secrets...)
					if hangs { // an honest answer may take longer
						return
					}
					server.ClearFaults()
					wantServed(t, m, fooKind)
					server.SetFault(fakeapi.All(), fault)
					wantSilence(t, m, secrets...)
				})
			}
		}
	}
}

func redirectEcho() fakeapi.Fault {
	return fakeapi.Func("redirect", func(req *http.Request) (*http.Response, error) {
		sent := strings.Fields(req.Header.Get("Authorization"))
		return &http.Response{
			StatusCode: 302, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
			Header: http.Header{"Location": {"http://" + strings.TrimRight(sent[len(sent)-1], "=") + ".invalid/apis"}},
		}, nil
	})
}

// wantSilence looks up something that does not exist, and searches the errors for
// secrets.
func wantSilence(t *testing.T, m meta.RESTMapper, secrets ...string) {
	t.Helper()
	_, versioned := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"}, "v1")
	_, anyVersion := m.RESTMapping(schema.GroupKind{Group: "example.com", Kind: "Absent"})
	_, anyGroup := m.KindFor(schema.GroupVersionResource{Resource: "absents"})
	for _, err := range []error{versioned, anyVersion, anyGroup} {
		if err == nil || meta.IsNoMatchError(err) || strings.ContainsAny(err.Error(), "\x1b\n") || len(versioned.Error()) > 2000 {
			t.Errorf("got %v", err)
			continue
		}
		for cause := err; cause != nil; cause = errors.Unwrap(cause) {
			for _, secret := range secrets {
				if strings.Contains(strings.ToLower(cause.Error()), strings.ToLower(strings.TrimRight(secret, "="))) {
					t.Errorf("%q is in: %v", secret, cause)
				}
			}
		}
	}
}

// A redirect is followed on the same host, and never to another one: client-go's
// transport would send the credentials along. A lookup with a version goes on to the
// version's own path.
func TestRedirectsStayOnTheHost(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for to, want := range map[string]string{
		"http://fake.invalid/apis?moved": "GET /api  v2+protobuf 200; GET /apis  Redirect 302; GET /apis  v2+protobuf 200",
		"http://elsewhere.invalid/apis":  "GET /api  v2+protobuf 200; GET /apis  Redirect 302; GET /apis/example.com/v1  legacy 200",
		"http://fake.invalid:81/apis":    "GET /api  v2+protobuf 200; GET /apis  Redirect 302; GET /apis/example.com/v1  legacy 200",
		"//elsewhere.invalid/apis":       "GET /api  v2+protobuf 200; GET /apis  Redirect 302; GET /apis/example.com/v1  legacy 200",
	} {
		server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup("example.com", fakeVersion("v1", "Foo")))
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		server.SetFault(fakeapi.At("/apis"), fakeapi.Times(1, fakeapi.Func("Redirect", func(*http.Request) (*http.Response, error) {
			return &http.Response{StatusCode: 302, Body: http.NoBody, Header: http.Header{"Location": {to}}}, nil
		})))
		_, err := m.RESTMappingWithContext(context.Background(), schema.GroupKind{Group: "example.com", Kind: "Foo"}, "v1")
		if err != nil {
			t.Errorf("%s: %v", to, err)
		}
		requests := server.Requests()
		if got := textOfAll(requests, fakeapi.Request.String); got != want {
			t.Errorf("%s: %s", to, got)
		}
		for _, r := range requests {
			if r.Host != "fake.invalid" {
				t.Errorf("%s: a request to %s with Authorization %q", to, r.Host, r.Authorization)
			}
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
		server := newServer(fakeapi.Aggregated())
		m := newMapperThrough(t, server, through(func(*http.Request) (*http.Response, error) { return nil, errors.New(text) }), apiutil.DynamicRESTMapperOptions{})
		wantSilence(t, m, secret)
		if err := lookUp(m, fooKind); !strings.Contains(err.Error(), "connection refused") {
			t.Errorf("%s: got %v", text, err)
		}
	}
}

// A host that is no URL is named in the error without its user and password.
func TestErrorsDoNotShowUserinfoOfMalformedHosts(t *testing.T) {
	for _, host := range []string{
		"https://admin:my secret@host", "https://admin:se/secret@host%zz", "admin:secret@host:443/path",
		"https://admin:secret%zz@host", "https://admin:secret@host:port", "//admin:secret@host/path", "//admin:se/secret@host", "admin:secret@host%zz",
	} {
		for _, watch := range []bool{false, true} {
			_, err := apiutil.NewDynamicRESTMapperWithOptions(&rest.Config{Host: host}, &http.Client{}, apiutil.DynamicRESTMapperOptions{WatchAPIs: watch})
			if err == nil || !strings.Contains(err.Error(), "host") {
				t.Errorf("%s: %v", host, err)
				continue
			}
			for _, part := range []string{"admin", "my ", "secret", ":se", "zz@"} {
				if strings.Contains(err.Error(), part) {
					t.Errorf("%s: %q is in: %v", host, part, err)
				}
			}
		}
	}
}
