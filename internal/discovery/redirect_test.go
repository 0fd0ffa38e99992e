// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Hosts are the same whatever the case of their names, and with or without the default port.
func TestRedirectsOnTheSameHost(t *testing.T) {
	for to, followed := range map[string]bool{
		"http://fake.invalid:80/there": true, "http://FAKE.invalid/there": true, "https://fake.invalid/there": true,
		"https://Fake.Invalid:443/there": true, "/there": true,
		"http://fake.invalid:443/there":   false,
		"https://fake.invalid:80/there":   false,
		"http://fake.invalid.other/there": false,
		"http://other.invalid/there":      false,
		"//fake:80/there":                 false,
	} {
		var asked []string
		c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
			asked = append(asked, req.URL.Path)
			resp := &http.Response{StatusCode: 307, Header: http.Header{"Location": {to}}, Body: http.NoBody, Request: req}
			if req.URL.Path == "/there" {
				resp.StatusCode, resp.Body = 200, io.NopCloser(strings.NewReader(`{"kind":"APIResourceList"}`))
			}
			return resp, nil
		}))
		_, _, err := c.Version(context.Background(), "example.com", "v1")
		if followed != (err == nil) || len(asked) == 2 != followed || err != nil && strings.Contains(err.Error(), "invalid") {
			t.Errorf("a redirect to %s: %v, %q; want that it is followed: %t", to, err, asked, followed)
		}
	}
}

// A redirect from HTTPS to HTTP would send the credentials in plain text, although the host is the same. The answer is
// no failure of the server: it does answer.
func TestRedirectsThatLoseTLSAreRefused(t *testing.T) {
	for to, followed := range map[string]bool{
		"http://fake.invalid/there":      false,
		"http://fake.invalid:80/there":   false,
		"https://fake.invalid:443/there": true,
		"/there":                         true,
	} {
		var asked []string
		via := transport(func(req *http.Request) (*http.Response, error) {
			asked = append(asked, req.URL.String())
			code, body := http.StatusTemporaryRedirect, ""
			if req.URL.Path == "/there" {
				code, body = http.StatusOK, `{"kind":"APIResourceList"}`
			}
			return &http.Response{
				StatusCode: code, Header: http.Header{"Location": {to}}, Body: io.NopCloser(strings.NewReader(body)), Request: req,
			}, nil
		})
		c, err := NewClient(
			&rest.Config{Host: "https://fake.invalid", QPS: -1, BearerToken: fakeapi.Token}, &http.Client{Transport: via},
			Options{RequestTimeout: time.Minute, MaxResponseBytes: 8 << 20},
		)
		if err != nil {
			t.Fatal(err)
		}

		_, _, err = c.Version(context.Background(), "example.com", "v1")

		if followed && (err != nil || len(asked) != 2) {
			t.Errorf("a redirect to %s: %v after %q; want that it is followed", to, err, asked)
		}
		var failed *Error
		refused := len(asked) == 1 && errors.As(err, &failed) && failed.Err.Error() == errOtherHost.Error() &&
			failed.Code == http.StatusTemporaryRedirect && !serverFailed(err)
		if !followed && !refused {
			t.Errorf("a redirect to %s: %v after %q; want that it is refused, with the code 307", to, err, asked)
		}
	}
}

// A server that redirects without end is asked ten times, as by net/http's own client. If the program has a rule of
// its own for redirects on the same host, that one decides.
func TestRedirectsAreBounded(t *testing.T) {
	most := func(redirects int) checkRedirect {
		return func(_ *http.Request, via []*http.Request) error {
			if len(via) > redirects {
				return errors.New("redirect refused")
			}
			return nil
		}
	}
	for name, test := range map[string]struct {
		own   checkRedirect
		asked int
		want  string
	}{
		"no rule of the program": {nil, 10, "stopped after 10 redirects"},
		"a lower bound":          {most(3), 4, "redirect refused"},
		"a higher bound":         {most(20), 21, "redirect refused"},
	} {
		asked := 0
		via := transport(func(req *http.Request) (*http.Response, error) {
			asked++
			if asked > 100 {
				return nil, errors.New("redirects without end")
			}
			return &http.Response{
				StatusCode: http.StatusFound, Header: http.Header{"Location": {"/again"}}, Body: http.NoBody, Request: req,
			}, nil
		})
		c, err := NewClient(
			&rest.Config{Host: "http://fake.invalid", QPS: -1}, &http.Client{Transport: via, CheckRedirect: test.own},
			Options{RequestTimeout: time.Minute, MaxResponseBytes: 8 << 20},
		)
		if err != nil {
			t.Fatal(err)
		}

		_, _, err = c.Version(context.Background(), "example.com", "v1")

		if asked != test.asked || err == nil || !strings.HasSuffix(err.Error(), test.want) {
			t.Errorf("%s: %d requests, %v; want %d, and an error that ends with %q", name, asked, err, test.asked, test.want)
		}
	}
}
