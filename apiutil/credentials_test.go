// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// echo makes a fault that answers with what say makes of the Authorization header.
func echo(code int, contentType string, say func(authorization string) string) fakeapi.Fault {
	return fakeapi.Func("echo", func(req *http.Request) (*http.Response, error) {
		body := say(req.Header.Get("Authorization"))
		return &http.Response{
			StatusCode: code, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {contentType}},
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

// A server, or a proxy before it, may repeat in its answer what it was sent.
func TestErrorsDoNotEchoCredentials(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const jsonType, user, password = "application/json", "someone", "password-of-someone"
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	faults := map[string]fakeapi.Fault{
		"a Status":          echo(403, jsonType, func(sent string) string { return asStatus("refused: " + sent) }),
		"a Status with 500": echo(500, jsonType, asStatus),
		"a page":            echo(401, "text/html", func(sent string) string { return "<p>" + sent }),
		"a text with 200":   echo(200, jsonType, func(sent string) string { return sent }),
		"a kind":            echo(200, jsonType, func(sent string) string { return fmt.Sprintf(`{"kind":%q,"apiVersion":%q}`, sent, sent) }),
		"a wrong type":      echo(200, jsonType, func(sent string) string { return fmt.Sprintf(`{"items":%q}`, sent) }),
		"a group-version":   echo(200, jsonType, func(sent string) string { return fmt.Sprintf(`{"kind":"APIResourceList","groupVersion":%q}`, sent) }),
		"a group":           echo(200, jsonType, func(sent string) string { return fmt.Sprintf(`{"kind":"APIGroup","name":%q}`, sent) }),
		"a redirect":        redirectEcho(),
		"an error of a proxy": fakeapi.Func("proxy", func(req *http.Request) (*http.Response, error) {
			return nil, errors.New(req.Header.Get("Authorization"))
		}),
	}
	for name, fault := range faults {
		t.Run(name, func(t *testing.T) {
			for _, scheme := range []string{"bearer", "basic", "rotated"} {
				if scheme == "rotated" && name == "a redirect" {
					continue // nobody can tell that this host's name is a token
				}
				server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")), fakeGroup("example.com", fakeVersion("v1", "Foo")))
				cfg, client := server.Config(), server.Client()
				if scheme == "basic" {
					cfg.BearerToken, cfg.Username, cfg.Password = "", user, password
					client = &http.Client{Transport: transport.NewBasicAuthRoundTripper(user, password, cfg.Transport)}
				}
				if scheme == "rotated" { // what the transport sends is not what the configuration says
					cfg.BearerToken = "an-older-token"
				}
				m, err := apiutil.NewDynamicRESTMapper(cfg, client)
				if err != nil {
					t.Fatal(err)
				}
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, fakeapi.Token, password, basic)
				server.ClearFaults()
				if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}); err != nil {
					t.Fatal(err)
				}
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, fakeapi.Token, password, basic)
			}
		})
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
		if err == nil || meta.IsNoMatchError(err) {
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
func TestRedirects(t *testing.T) {
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

// Credentials that are not in the configuration are known from the request that was sent:
// a token that is read from a file, or a password that the transport adds.
func TestErrorsDoNotShowWhatWasSent(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const token, user, password = "eyJhbGciOiJSUzI1NiJ9.of-a-file.signature", "sent-user", `sent"pass\word`
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	basic := base64.StdEncoding.EncodeToString([]byte(user + ":" + password))
	bare := func(sent string) string { _, after, _ := strings.Cut(sent, " "); return after }
	decoded := func(sent string) string {
		if pair, err := base64.StdEncoding.DecodeString(bare(sent)); err == nil {
			return string(pair)
		}
		return bare(sent)
	}
	asKind := func(text string) string {
		quoted, _ := json.Marshal(text)
		return fmt.Sprintf(`{"kind":%s,"apiVersion":"v1"}`, quoted)
	}
	for name, fault := range map[string]fakeapi.Fault{
		"a Status":          echo(401, "application/json", func(sent string) string { return asStatus("not valid: " + bare(sent)) }),
		"a Status, decoded": echo(401, "application/json", func(sent string) string { return asStatus("not valid: " + decoded(sent)) }),
		"a quote in it":     echo(401, "application/json", func(sent string) string { return asStatus(fmt.Sprintf("not valid: %q", decoded(sent))) }),
		"a kind":            echo(200, "application/json", func(sent string) string { return asKind(bare(sent)) }),
		"a kind, decoded":   echo(200, "application/json", func(sent string) string { return asKind(decoded(sent)) }),
		"text, decoded":     echo(200, "application/json", decoded),
		"a redirect's host": redirectEcho(),
	} {
		t.Run(name, func(t *testing.T) {
			server := newServer(fakeapi.Aggregated())
			fromFile := server.Config()
			fromFile.BearerToken, fromFile.BearerTokenFile = "", file
			client, err := rest.HTTPClientFor(fromFile)
			if err != nil {
				t.Fatal(err)
			}
			plain := server.Config()
			plain.BearerToken = ""
			for cfg, client := range map[*rest.Config]*http.Client{
				fromFile: client,
				plain:    {Transport: transport.NewBasicAuthRoundTripper(user, password, plain.Transport)},
			} {
				m, err := apiutil.NewDynamicRESTMapper(cfg, client)
				if err != nil {
					t.Fatal(err)
				}
				server.SetFault(fakeapi.All(), fault)
				wantSilence(t, m, token, basic, user, `pass\word`, `pass\\word`)
				server.ClearFaults()
				wantServed(t, m, fooKind)
			}
		})
	}
}

// An error quotes names that a server sends, and with them a password in the form
// that quoting gives it.
func TestErrorsDoNotShowQuotedCredentials(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := newServer(fakeapi.Aggregated())
	cfg := server.Config()
	cfg.BearerToken, cfg.Username, cfg.Password = "", "someone", `pass"word\one`
	m, err := apiutil.NewDynamicRESTMapper(cfg, &http.Client{Transport: cfg.Transport})
	if err != nil {
		t.Fatal(err)
	}
	server.SetFault(fakeapi.All(), echo(200, "application/json", func(string) string { return `{"kind":"pass\"word\\one"}` }))
	wantSilence(t, m, `word\one`, `word\\one`)
}
