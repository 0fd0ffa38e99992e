// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What the configuration does not know is known from what was sent: a token that
// is read from a file, or a password that the transport adds.
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

// What the watch logs is as silent as errors are.
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
func TestWatchRedirects(t *testing.T) {
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
