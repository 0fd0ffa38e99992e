// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

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
