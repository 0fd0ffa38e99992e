// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

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

// Credentials in the URL stay out of errors, in whatever way the request fails.
func TestErrorsDoNotShowUserinfo(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const user, password = "user-of-the-url", "password-of-the-url"
	for _, fault := range []fakeapi.Fault{
		fakeapi.Refused(), fakeapi.ResetMidBody(), fakeapi.Truncated(), fakeapi.Timeout(), fakeapi.Unexpected304(),
		fakeapi.Status(503, 0), fakeapi.StatusText(502), fakeapi.LoginPage(), fakeapi.Huge(1 << 20),
		fakeapi.Redirect("http://elsewhere.invalid/apis"),
		echo(403, "application/json", asStatus),
	} {
		t.Run(fault.String(), func(t *testing.T) {
			server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
			cfg := server.Config()
			cfg.Host = "http://" + user + ":" + password + "@fake.invalid"
			m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, &http.Client{Transport: cfg.Transport},
				apiutil.DynamicRESTMapperOptions{RequestTimeout: 10 * time.Millisecond, MaxResponseBytes: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			server.SetFault(fakeapi.All(), fault)
			wantSilence(t, m, user, password, base64.StdEncoding.EncodeToString([]byte(user+":"+password)))
		})
	}
}

// The other side may not even speak HTTP, and repeat what it receives.
func TestErrorsDoNotShowWhatIsNoHTTP(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			buffer := make([]byte, 4096)
			n, _ := conn.Read(buffer)
			_, sent, _ := bytes.Cut(buffer[:n], []byte("Authorization: "))
			line, _, _ := bytes.Cut(sent, []byte("\r\n"))
			fmt.Fprintf(conn, "HTTP/1.1 200 OK\r\n%s\r\n\r\n", line) // a header without a colon
			_ = conn.Close()
		}
	}()
	cfg := &rest.Config{Host: "http://" + listener.Addr().String(), BearerToken: fakeapi.Token}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	m, err := apiutil.NewDynamicRESTMapper(cfg, client)
	if err != nil {
		t.Fatal(err)
	}
	wantSilence(t, m, fakeapi.Token)
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

// The watch logs no secrets either.
func TestWatchDoesNotLogWhatWasSent(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	const token = "eyJhbGciOiJSUzI1NiJ9.of-the-watch.signature"
	server := newServer(fakeapi.Aggregated())
	next := server.Client().Transport
	log, logger := newTestLog()
	m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path != crdsPath {
			return next.RoundTrip(req)
		}
		req = req.Clone(req.Context()) // as by a transport that reads the token from a file
		req.Header.Set("Authorization", "Bearer "+token)
		return jsonAnswer(req, http.StatusInternalServerError, []byte(asStatus(fmt.Sprintf("no such token: %q", token)))), nil
	}), apiutil.DynamicRESTMapperOptions{WatchAPIs: true, Logger: logger})
	stop := startMapper(t, m)
	for end := time.Now().Add(10 * time.Second); len(log.containing("no such token")) == 0 && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	stop()
	if len(log.containing("no such token")) == 0 || len(log.containing(token)) > 0 {
		t.Errorf("logged: %q", log.take(""))
	}
}

// The watch does not follow a redirect to another host, which client-go's
// transport would send the credentials to.
func TestRedirectsOfTheWatchStayOnTheHost(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	elsewhere := make(chan string, 100)
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		elsewhere <- req.Header.Get("Authorization")
		w.WriteHeader(http.StatusInternalServerError)
	}))
	defer other.Close()
	server, asked := newServer(fakeapi.Aggregated()), make(chan struct{}, 100)
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if req.URL.Path == crdsPath || req.URL.Path == apiServicesPath {
			asked <- struct{}{}
			http.Redirect(w, req, strings.Replace(other.URL, "127.0.0.1", "localhost", 1)+req.URL.Path, http.StatusFound)
			return
		}
		server.ServeHTTP(w, req)
	}))
	defer api.Close()
	cfg := &rest.Config{Host: api.URL, BearerToken: "watch-token"}
	client, err := rest.HTTPClientFor(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer client.CloseIdleConnections()
	m, err := apiutil.NewDynamicRESTMapperWithOptions(cfg, client, apiutil.DynamicRESTMapperOptions{WatchAPIs: true})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	for range 2 { // of each resource
		select {
		case <-asked:
		case <-time.After(10 * time.Second):
			t.Error("nothing was asked for")
		}
	}
	select {
	case sent := <-elsewhere:
		t.Errorf("another host was asked, with Authorization %q", sent)
	case <-time.After(100 * time.Millisecond):
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
