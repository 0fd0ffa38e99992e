// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
