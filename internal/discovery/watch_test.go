// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
)

// answers is a server that answers everything with one body.
type answers struct {
	code int
	body []byte
}

func (a answers) RoundTrip(req *http.Request) (*http.Response, error) {
	return &http.Response{
		StatusCode: a.code, Header: http.Header{"Content-Type": {"application/json"}}, Request: req, Body: io.NopCloser(bytes.NewReader(a.body)),
	}, nil
}

func watchClient(t testing.TB, server http.RoundTripper) *Client {
	t.Helper()
	cfg, httpClient := &rest.Config{Host: "http://in-memory", QPS: -1}, &http.Client{Transport: server}
	c, err := NewClient(cfg, httpClient, Options{RequestTimeout: time.Minute, MaxResponseBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	w, err := c.WatchClient(cfg, httpClient)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

var crds = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// watchOnce returns how many events a stream has, and the error that ended it.
func watchOnce(t testing.TB, server http.RoundTripper) (events int, failed error) {
	t.Helper()
	place := "5"
	failed = watchClient(t, server).Watch(context.Background(), crds, &place, time.Minute, func() {}, func() { events++ })
	if len(place) > maxVersion || place != "" && failed != nil {
		t.Errorf("the next watch begins at %q after %v", place, failed)
	}
	return events, failed
}

// A server or a proxy may redirect a watch to a URL without its parameters. That is no fault of
// the program's transport.
func TestRedirectedWatch(t *testing.T) {
	events, err := watchOnce(t, transport(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path != "/elsewhere" {
			resp, err := answers{http.StatusTemporaryRedirect, nil}.RoundTrip(req)
			resp.Header.Set("Location", "/elsewhere")
			return resp, err
		}
		return answers{http.StatusOK, []byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"6"}}}`)}.RoundTrip(req)
	}))
	if err != nil || events != 1 {
		t.Errorf("%d events, %v", events, err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (rt transport) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }

// A 404 that breaks off does not say that anything is absent, whatever was read of it. The body
// of a 101 is the connection: a read of it might never end. That of a 304 may be as long.
func TestBodiesThatBreakAreNoAbsence(t *testing.T) {
	for _, test := range []struct {
		code       int
		body, says string
	}{
		{http.StatusNotFound, pageNotFound, "unexpected EOF"},
		{http.StatusNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`, "unexpected EOF"},
		{http.StatusSwitchingProtocols, "", "101"},
		{http.StatusNotModified, "", "304"},
	} {
		c := watchClient(t, transport(func(req *http.Request) (*http.Response, error) {
			resp, err := answers{code: test.code}.RoundTrip(req)
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(test.body), iotest.ErrReader(io.ErrUnexpectedEOF)))
			return resp, err
		}))
		if table, _, err := c.Version(context.Background(), "example.com", "v1"); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%d %s: %v, %v", test.code, test.body, table, err)
		}
	}
}

// No stream that a server sends causes a panic or is read for ever.
func FuzzWatch(f *testing.F) {
	const object = `"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"6"}}}`
	for _, seed := range []string{
		`{"type":"ADDED",` + object + `{"type":"BOOKMARK",` + object, `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`,
		`{"type":"ERROR"}`, `{"type":null,"object":null}`, `[]`, ``, `<html>`, `{"type":"ADDED","object":{"metadata":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		server := answers{http.StatusOK, body}
		events, _ := watchOnce(t, server)
		if events > len(body) {
			t.Fatalf("%d events of %d bytes", events, len(body))
		}
		if version, err := watchClient(t, server).listVersion(context.Background(), crds); (version == "") == (err == nil) || len(version) > maxVersion {
			t.Fatalf("version %q, %v", version, err)
		}
	})
}
