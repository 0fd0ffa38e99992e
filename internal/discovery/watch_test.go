// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
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

// watchOnce returns the resource versions of a stream's events, and the error that ended it.
func watchOnce(t testing.TB, body []byte) (versions []string, failed error) {
	t.Helper()
	failed = watchClient(t, answers{http.StatusOK, body}).Watch(context.Background(), crds, "5", time.Minute, func() {}, func(version string, _ bool) {
		versions = append(versions, version)
	})
	return versions, failed
}

// A server that does not say what is wrong leaves no error without a reason, and what it
// says of the end of a watch is not shown.
func TestWatchErrorsHaveAReason(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"message":"a secret"}}`: "with error 410 Gone",
		`{"type":"ERROR","object":{}}`: "with error 0",
		`{"type":"ERROR"}`:             "with error 0",
		`{"type":"a secret"}`:          "not a watch event",
		`{"type":["a secret"]}`:        "not a watch event",
	} {
		if _, err := watchOnce(t, []byte(body)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", body, err)
		}
	}
	refused := watchClient(t, answers{http.StatusGone, nil})
	_, err := refused.ListVersion(context.Background(), crds)
	if want := "list of /apis/apiextensions.k8s.io/v1/customresourcedefinitions failed: the server answered 410 Gone"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	err = refused.Watch(context.Background(), crds, "5", time.Minute, nil, nil)
	if want := "watch of /apis/apiextensions.k8s.io/v1/customresourcedefinitions failed: the server answered 410 Gone"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

// A server or a proxy may answer a watch with a success that is not 200, or redirect it to a
// URL without its parameters. Neither is a fault of the program's transport.
func TestAnyAnswerToAWatch(t *testing.T) {
	event := []byte(`{"type":"ADDED","object":{"metadata":{"resourceVersion":"6"}}}`)
	for _, code := range []int{http.StatusCreated, http.StatusNonAuthoritativeInfo, http.StatusNoContent, http.StatusPartialContent} {
		var versions []string
		server := watchClient(t, answers{code, event})
		err := server.Watch(context.Background(), crds, "5", time.Minute, func() {}, func(version string, _ bool) { versions = append(versions, version) })
		if err != nil || len(versions) != 1 {
			t.Errorf("%d: events %v, %v", code, versions, err)
		}
	}
	var versions []string
	moved := watchClient(t, transport(func(req *http.Request) (*http.Response, error) {
		if req.URL.Path != "/elsewhere" {
			resp, err := answers{http.StatusTemporaryRedirect, nil}.RoundTrip(req)
			resp.Header.Set("Location", "/elsewhere")
			return resp, err
		}
		return answers{http.StatusOK, event}.RoundTrip(req)
	}))
	err := moved.Watch(context.Background(), crds, "5", time.Minute, func() {}, func(version string, _ bool) { versions = append(versions, version) })
	if err != nil || len(versions) != 1 {
		t.Errorf("redirected: events %v, %v", versions, err)
	}
}

type transport func(*http.Request) (*http.Response, error)

func (rt transport) RoundTrip(req *http.Request) (*http.Response, error) { return rt(req) }

// A 404 that breaks off does not say that anything is absent, whatever was read of it.
func TestBrokenNotFoundIsNoAbsence(t *testing.T) {
	for _, body := range []string{pageNotFound, `{"kind":"Status","apiVersion":"v1","code":404}`} {
		c := watchClient(t, transport(func(req *http.Request) (*http.Response, error) {
			resp, err := answers{code: http.StatusNotFound}.RoundTrip(req)
			resp.Body = io.NopCloser(io.MultiReader(strings.NewReader(body), iotest.ErrReader(io.ErrUnexpectedEOF)))
			return resp, err
		}))
		if table, err := c.Version(context.Background(), "example.com", "v1"); err == nil {
			t.Errorf("%s: %v, and no error", body, table)
		}
	}
}

// The body of a 101 is the connection: a read of it might never end.
func TestNothingIsReadOfAnUpgrade(t *testing.T) {
	c := watchClient(t, transport(func(req *http.Request) (*http.Response, error) {
		resp, err := answers{code: http.StatusSwitchingProtocols}.RoundTrip(req)
		resp.Body = io.NopCloser(iotest.ErrReader(errors.New("was read")))
		return resp, err
	}))
	if table, err := c.Version(context.Background(), "example.com", "v1"); err == nil || strings.Contains(err.Error(), "was read") {
		t.Errorf("%v, %v", table, err)
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
		versions, _ := watchOnce(t, body)
		if len(versions) > len(body) {
			t.Fatalf("%d events of %d bytes", len(versions), len(body))
		}
		for _, version := range versions {
			if version == "" || len(version) > maxVersion {
				t.Fatalf("version %q", version)
			}
		}
		server := answers{http.StatusOK, body}
		if version, err := watchClient(t, server).ListVersion(context.Background(), crds); (version == "") == (err == nil) || len(version) > maxVersion {
			t.Fatalf("version %q, %v", version, err)
		}
	})
}
