// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package discovery

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// A server that sends events without end is read slowly.
func TestEventsAreReadSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		padding := strings.Repeat(" ", maxBytesPerSecond/2)
		event := `{"type":"ADDED","object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1",` + padding +
			`"metadata":{"resourceVersion":"6"}}}`
		c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
			stream := io.NopCloser(strings.NewReader(strings.Repeat(event, 5)))
			return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: stream}, nil
		}))
		place, events, start := "5", 0, time.Now()
		crds := schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
		}
		err := c.Watch(t.Context(), crds, &place, time.Minute, func() {}, func() { events++ })
		took := time.Since(start)
		if err != nil || events != 5 || took < 2*time.Second || took > 4*time.Second {
			t.Errorf("%d events took %v, %v; want 5 events of half a second each", events, took, err)
		}
	})
}
