// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

func watchClient(t testing.TB, server http.RoundTripper) *WatchClient {
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
	w, err := watchClient(t, answers{http.StatusOK, body}).Watch(context.Background(), crds, "5", time.Minute, func(err error) { failed = err })
	if err != nil {
		return nil, err
	}
	for event := range w.ResultChan() {
		versions = append(versions, event.Object.(*metav1.PartialObjectMetadata).ResourceVersion)
	}
	w.Stop()
	return versions, failed
}

// Nothing is left of the object of an event but its resourceVersion.
func TestWatchForgetsObjects(t *testing.T) {
	const object = `{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"name":"foo","resourceVersion":"6","annotations":{"a":"b"}}}`
	w, err := watchClient(t, answers{http.StatusOK, []byte(`{"type":"ADDED","object":` + object + `}`)}).
		Watch(context.Background(), crds, "5", time.Minute, func(error) {})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Stop()
	event := <-w.ResultChan()
	if got := event.Object.(*metav1.PartialObjectMetadata); got.ResourceVersion != "6" || got.Name != "" || got.Annotations != nil {
		t.Errorf("got %+v", got)
	}
}

// A watch ends on Stop although nobody takes its event.
func TestWatchStopsWhileAnEventWaits(t *testing.T) {
	object := `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"6"}}}`
	seen := make(chan struct{}, 100)
	w, err := watchClient(t, answers{http.StatusOK, []byte(strings.Repeat(object, 10))}).
		Watch(context.Background(), crds, "5", time.Minute, func(error) { seen <- struct{}{} })
	if err != nil {
		t.Fatal(err)
	}
	w.ResultChan()
	<-seen
	w.Stop() // goleak sees what it leaves
}

// A server that does not say what is wrong leaves no error without a reason.
func TestWatchErrorsHaveAReason(t *testing.T) {
	for body, want := range map[string]string{
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410,"message":"a secret"}}`: "with error 410 Gone",
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1"}}`:                                 "with error 0",
		`{"type":"ERROR","object":{}}`: "not a watch event",
	} {
		if _, err := watchOnce(t, []byte(body)); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", body, err)
		}
	}
	if _, err := watchClient(t, answers{http.StatusGone, nil}).List(context.Background(), crds); err == nil || !strings.Contains(err.Error(), "list of /apis/apiextensions.k8s.io/v1/customresourcedefinitions failed: ") {
		t.Errorf("refused: %v", err)
	}
}

// A list takes no more memory than its bound, in whatever form it comes: two bytes of
// protobuf are an object of some 280 bytes.
func TestListOfManyObjectsIsRefused(t *testing.T) {
	const kind = `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"5"},"items":[`
	for name, body := range map[string]string{
		"JSON":     kind + strings.Repeat("{},", 200_000) + "{}]}",
		"protobuf": protobufMagic + strings.Repeat("\x12\x00", 400_000),
	} {
		client := watchClient(t, answers{http.StatusOK, []byte(body)})
		var err error
		if took := allocated(func() { _, err = client.List(context.Background(), crds) }); err == nil || took > 8<<20 {
			t.Errorf("%s: %d bytes were allocated, error %v", name, took, err)
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
		if version, err := watchClient(t, server).List(context.Background(), crds); (version == "") == (err == nil) || len(version) > maxVersion {
			t.Fatalf("version %q, %v", version, err)
		}
	})
}
