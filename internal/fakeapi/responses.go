// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// response returns a complete answer, which a fault may change.
func response(code int, contentType string, body []byte) *http.Response {
	resp := &http.Response{
		Status:     strconv.Itoa(code) + " " + http.StatusText(code),
		StatusCode: code,
		Proto:      "HTTP/1.1",
		ProtoMajor: 1,
		ProtoMinor: 1,
		Header:     http.Header{"Cache-Control": {"no-cache, private"}},
	}
	if contentType != "" {
		resp.Header.Set("Content-Type", contentType)
	}
	setBody(resp, body)
	return resp
}

func setBody(resp *http.Response, body []byte) {
	resp.Body = io.NopCloser(bytes.NewReader(body))
	resp.ContentLength = int64(len(body))
}

// setStream sets a body whose length is not known beforehand.
func setStream(resp *http.Response, body io.Reader) {
	resp.Body = io.NopCloser(body)
	resp.ContentLength = -1
}

// textResponse returns an error of a handler that does not belong to the API machinery.
func textResponse(code int, text string) *http.Response {
	resp := response(code, "text/plain; charset=utf-8", []byte(text))
	resp.Header.Set("X-Content-Type-Options", "nosniff")
	return resp
}

// statusResponse returns an error as the API machinery writes it. A positive
// retryAfter is in seconds.
func statusResponse(code, retryAfter int) (*http.Response, error) {
	status := apierrors.NewGenericServerResponse(code, "get", schema.GroupResource{}, "", "", retryAfter, false).Status()
	status.TypeMeta = metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}
	body, err := json.Marshal(status)
	if err != nil {
		return nil, err
	}
	resp := response(code, jsonType, append(body, '\n'))
	if retryAfter > 0 {
		resp.Header.Set("Retry-After", strconv.Itoa(retryAfter))
	}
	return resp, nil
}
