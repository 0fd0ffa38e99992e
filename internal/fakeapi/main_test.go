// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	v2JSON      = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	v2Protobuf  = "application/vnd.kubernetes.protobuf;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	v2beta1JSON = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList"
	plainJSON   = "application/json"
	everyForm   = v2Protobuf + "," + v2JSON + "," + plainJSON
)

// result is what a client sees of an answer. The body is as much of it as there was.
type result struct {
	Code   int
	Header http.Header
	Body   string
	Err    error // of the request or of reading the body
}

func get(t *testing.T, s *Server, path, accept, ifNoneMatch string) result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fake.invalid"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	if ifNoneMatch != "" {
		req.Header.Set("If-None-Match", ifNoneMatch)
	}
	resp, err := s.Client().Do(req)
	if err != nil {
		return result{Err: err}
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return result{resp.StatusCode, resp.Header, string(body), err}
}

func lines(requests []Request) []string {
	var list []string
	for _, r := range requests {
		list = append(list, r.String())
	}
	return list
}
