// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Of an error of a transport only words are shown that are known to be harmless, whatever else is in it: a secret
// in any form, and the address of the server.
func TestErrorsOfTransportsShowKnownWordsOnly(t *testing.T) {
	const secret = "s3cr3t-Opaque.value"
	const jwt = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJ4In0.c2ln"
	address := &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 6443}
	for text, want := range map[string]string{
		"token: " + secret:                                             "token: …",
		"{'token': '" + secret + "'}":                                  "…",
		"'token': '" + secret + "'":                                    "'token': …",
		"AWS_SECRET_ACCESS_KEY=" + secret:                              "…",
		"kubelogin --oidc-client-secret " + secret + ": exit status 1": "… exit status 1",
		jwt: "…",
		"getting credentials: exec: executable aws failed with exit code 255":                                "getting credentials: exec: executable aws failed with exit code 255",
		"oauth2: cannot fetch token: 400 Bad Request\nResponse: {\"password\":\"" + secret + "\"}":           "oauth2: cannot fetch token: 400 Bad Request Response: …",
		`Post "https://me:` + secret + `@login.invalid/token?key=` + secret + `": connection refused`:        "Post … connection refused",
		"dial tcp: lookup api.example.invalid on 192.0.2.53:53: no such host":                                "dial tcp: lookup … on … no such host",
		"http2: server sent GOAWAY and closed the connection; LastStreamID=7, ErrCode=NO_ERROR, debug=\"x\"": "http2: server sent GOAWAY and closed the connection; …",
		"stream error: stream ID 5; INTERNAL_ERROR; received from peer":                                      "stream error: stream ID 5; INTERNAL_ERROR; received from peer",
		"http2: client connection lost": "http2: client connection lost",
		strings.Repeat(secret, 1<<20):   "a text of 19922944 bytes, which is too long to be shown",
		"\x1b[2J\nI1122 forged":         "…",
	} {
		c := newClient(t, transport(func(*http.Request) (*http.Response, error) { return nil, errors.New(text) }))
		c.hasRead.Store(true) // so that nothing is sent again
		_, _, err := c.Version(context.Background(), "example.com", "v1")
		if got := "discovery of example.com/v1 at /apis/example.com/v1 failed: " + want; err == nil || err.Error() != got {
			t.Errorf("of %.200q is shown: %v; want %s", text, err, got)
		}
		panics := newClient(t, transport(func(*http.Request) (*http.Response, error) { panic(fmt.Errorf("%.9000s", text)) }))
		if _, _, err := panics.Version(context.Background(), "example.com", "v1"); err == nil ||
			strings.Contains(err.Error(), secret) {
			t.Errorf("of a panic with %.200q is shown: %v", text, err)
		}
	}
	refused := &net.OpError{Op: "dial", Net: "tcp", Addr: address, Err: &net.DNSError{Err: "x", Name: "secret.invalid"}}
	wrapped := fmt.Errorf("token: %s: %w", secret, errors.Join(refused, syscall.ECONNREFUSED, io.ErrUnexpectedEOF))
	c := newClient(t, transport(func(*http.Request) (*http.Response, error) { return nil, wrapped }))
	c.hasRead.Store(true)
	_, _, err := c.Version(context.Background(), "example.com", "v1")
	var operation *net.OpError
	switch {
	case errors.As(err, &operation):
		t.Errorf("errors.As finds what has the address in it: %v", operation)
	case !errors.Is(err, syscall.ECONNREFUSED), !errors.Is(err, io.ErrUnexpectedEOF), !utilnet.IsConnectionRefused(err):
		t.Errorf("errors.Is does not find the cause of %v", err)
	}
}

// A transport that fails before an answer is complete, for whatever reason, means that the server has failed (R6),
// unless the time of the request was over, or the answer is complete and wrong.
func TestEachErrorOfATransportIsTheServersFailure(t *testing.T) {
	answer := func(code int, body io.Reader) transport {
		return func(req *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: code, Header: http.Header{}, Body: io.NopCloser(body), ContentLength: -1, Request: req,
			}, nil
		}
	}
	causes := []error{
		io.EOF,
		io.ErrUnexpectedEOF,
		syscall.ECONNRESET,
		syscall.ECONNREFUSED,
		syscall.EPIPE,
		net.ErrClosed,
		errors.New("anything"),
		errors.New("http2: client connection lost"), errors.New("http2: server sent GOAWAY and closed the connection"),
		errors.New("stream error: stream ID 5; INTERNAL_ERROR"), tls.AlertError(80), x509.UnknownAuthorityError{},
		&net.OpError{Op: "remote error", Err: tls.AlertError(40)},
		&net.OpError{Op: "dial", Err: &net.DNSError{IsTimeout: true}},
	}
	read := func(ctx context.Context, via transport) error {
		c := newClient(t, via)
		c.hasRead.Store(true) // so that nothing is sent again
		_, _, err := c.Version(ctx, "example.com", "v1")
		return err
	}
	for _, cause := range causes {
		instead := transport(func(*http.Request) (*http.Response, error) { return nil, cause })
		if err := read(context.Background(), instead); !serverFailed(err) {
			t.Errorf("%v in the place of an answer is no failure of the server: %v", cause, err)
		}
		inBody := answer(200, io.MultiReader(strings.NewReader(`{"kind":`), failing{cause}))
		if err := read(context.Background(), inBody); !serverFailed(err) {
			if !errors.Is(cause, io.EOF) { // which is the end of a body
				t.Errorf("%v in the middle of a body is no failure of the server: %v", cause, err)
			}
		}
	}
	canceled, cancel := context.WithCancel(context.Background())
	readWithin := func(timeout time.Duration, via transport) error {
		c := newClient(t, via)
		c.hasRead.Store(true)
		c.http.Timeout = timeout
		_, _, err := c.Version(context.Background(), "example.com", "v1")
		return err
	}
	waits := transport(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, errors.New("anything")
	})
	hangs := transport(func(req *http.Request) (*http.Response, error) {
		cancel()
		<-req.Context().Done()
		return nil, errors.New("anything")
	})
	for name, err := range map[string]error{
		"the caller's own end":  read(canceled, hangs),
		"a body that is wrong":  read(context.Background(), answer(200, strings.NewReader("<html>"))),
		"a body of 9 MiB":       read(context.Background(), answer(200, strings.NewReader(strings.Repeat(" ", 9<<20)))),
		"the program's timeout": readWithin(time.Millisecond, waits),
		"the same in a body": readWithin(time.Millisecond, func(req *http.Request) (*http.Response, error) {
			body := io.NopCloser(endless{req.Context()})
			return &http.Response{StatusCode: 200, Header: http.Header{}, Body: body, ContentLength: -1, Request: req}, nil
		}),
		"403": read(context.Background(), answer(403, strings.NewReader(""))),
	} {
		if err == nil || serverFailed(err) {
			t.Errorf("%s is a failure of the server, or none at all: %v", name, err)
		}
	}
}

// The client tells of each failure of the server, whatever it was asked for and by whom.
func TestFailuresOfTheServerAreReported(t *testing.T) {
	var answer error
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: 403, Header: http.Header{}, Body: http.NoBody, Request: req}, answer
	}))
	c.hasRead.Store(true) // so that nothing is sent again
	reported := 0
	c.options.Failed = func() { reported++ }
	reads := map[string]func() error{
		"the document": func() error { _, err := c.Document(context.Background()); return err },
		"a version":    func() error { _, _, err := c.Version(context.Background(), "example.com", "v1"); return err },
		"a list":       func() error { _, _, _, err := c.List(context.Background(), "example.com"); return err },
	}
	for _, answer = range []error{nil, io.ErrUnexpectedEOF} {
		for name, read := range reads {
			reported = 0
			err := read()
			if failed := answer != nil; err == nil || (reported > 0) != failed {
				t.Errorf("%s: %v, and %d failures were reported; want some: %t", name, err, reported, failed)
			}
		}
	}
}

// The cause with which a program ends its own context is returned to it, unless it could be taken for an answer of the
// server. URLs, in which there may be a password, are not in it.
func TestCauseOfAContextIsNoAnswerOfTheServer(t *testing.T) {
	own := errors.New("shut down")
	widgets := schema.GroupResource{Group: "example.com", Resource: "widgets"}
	noMatch := &meta.NoResourceMatchError{PartialResource: widgets.WithVersion("")}
	notFound := apierrors.NewNotFound(widgets, "a")
	at := func(err error) error { return &url.Error{Op: "Get", URL: "http://me:secret@fake.invalid", Err: err} }
	for name, test := range map[string]struct {
		cause  error
		text   string
		isSame bool
	}{
		"of the program":       {own, "shut down", true},
		"wrapped":              {fmt.Errorf("a: %w", own), "a: shut down", true},
		"with a URL":           {at(own), "shut down", true},
		"with two URLs":        {at(at(own)), "shut down", true},
		"none":                 {nil, "context canceled", false},
		"a NotFound":           {notFound, notFound.Error(), false},
		"a wrapped NotFound":   {fmt.Errorf("a: %w", notFound), "a: " + notFound.Error(), false},
		"a NotFound with URLs": {at(notFound), notFound.Error(), false},
		"a NoMatch":            {noMatch, noMatch.Error(), false},
		"a wrapped NoMatch":    {fmt.Errorf("a: %w", noMatch), "a: " + noMatch.Error(), false},
	} {
		ctx, cancel := context.WithCancelCause(context.Background())
		cancel(test.cause)

		err := Cause(ctx)

		if err == nil || err.Error() != test.text || errors.Is(err, own) != test.isSame {
			t.Errorf("%s: %v; want %s, and that it wraps the cause: %t", name, err, test.text, test.isSame)
		}
		if apierrors.IsNotFound(err) || meta.IsNoMatchError(err) {
			t.Errorf("%s: %v is taken for an answer of the server", name, err)
		}
	}
}

// failing is a body that breaks off.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) { return 0, f.err }

// endless is a body that sends nothing until its request ends.
type endless struct{ ctx context.Context }

func (e endless) Read([]byte) (int, error) {
	<-e.ctx.Done()
	return 0, errors.New("anything")
}

// slowLimiter is a rate limiter that lets no request through.
type slowLimiter struct{ flowcontrol.RateLimiter }

func (slowLimiter) Wait(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

// A server is not responsive if it has not answered in time. That the program's own rate limiter has let no request
// through says nothing about it.
func TestUnansweredRequestsWereSent(t *testing.T) {
	waits := transport(func(req *http.Request) (*http.Response, error) {
		<-req.Context().Done()
		return nil, req.Context().Err()
	})
	refuses := transport(func(*http.Request) (*http.Response, error) { return nil, syscall.ECONNREFUSED })
	for name, test := range map[string]struct {
		via        transport
		limiter    flowcontrol.RateLimiter
		within     time.Duration
		unanswered bool
		text       string
	}{
		"the server hangs":       {waits, nil, time.Millisecond, true, "no complete answer within 1ms (RequestTimeout)"},
		"the server refuses":     {refuses, nil, time.Minute, false, "connection refused"},
		"the rate limiter waits": {waits, slowLimiter{}, time.Millisecond, false, "not sent: client rate limiter"},
		"the rate limiter refuses": {
			waits, flowcontrol.NewTokenBucketRateLimiter(0.001, 0), time.Minute, false, "not sent: client rate limiter",
		},
	} {
		c := newClient(t, test.via)
		c.hasRead.Store(true) // so that nothing is sent again
		c.options.RequestTimeout = test.within
		c.limiter = test.limiter

		_, _, err := c.Version(context.Background(), "example.com", "v1")

		if err == nil || Unanswered(err) != test.unanswered || GivesNoAnswer(err) != test.unanswered ||
			!strings.Contains(err.Error(), test.text) {
			t.Errorf("%s: %v, which is unanswered: %t; want %t, and %q",
				name, err, Unanswered(err), test.unanswered, test.text)
		}
		notSent := test.limiter != nil
		if errors.Is(err, ErrNotSent) != notSent || notSent && serverFailed(err) {
			t.Errorf("%s: %v; want an error of the limiter, and no failure of the server: %t", name, err, notSent)
		}
	}
}

// A version that the server marks as stale gives no answer, either: what serves it does not answer the server.
func TestStaleVersionGivesNoAnswer(t *testing.T) {
	read, err := decodeDocument(aggregatedJSON(
		`{"metadata":{"name":"g"},"versions":[{"version":"v1","freshness":"Stale"},{"version":"v2","resources":[{"resource":"\n"}`+
			`,{"resource":"\n","responseKind":{"kind":"R"}}]}]}`,
	), namedPath, false)
	if err != nil {
		t.Fatal(err)
	}
	versions := read.groups[0].Versions()
	if err := versions[0].Err; !GivesNoAnswer(err) || Unanswered(err) {
		t.Errorf("a stale version: %v; want that it gives no answer, and that no request was unanswered", err)
	}
	if err := versions[1].Err; err == nil || GivesNoAnswer(err) {
		t.Errorf("a version with an invalid name in it: %v; want an error that is an answer", err)
	}
}

// A server that ignores the parameters of Accept answers in protobuf with the list that has no resources. It is
// asked for JSON alone then, once and for good.
func TestServerThatIgnoresParameters(t *testing.T) {
	server, via := newServer(fakeapi.Typical(1, 1, 1)...)
	server.SetForms(fakeapi.Legacy())
	var accepts []string
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		accept := req.Header.Get("Accept")
		accepts = append(accepts, accept)
		if strings.Contains(accept, "protobuf") {
			plain := "k8s\x00\x0a\x12\x0a\x02v1\x12\x0cAPIGroupList\x12\x00"
			return &http.Response{
				StatusCode: 200, Header: http.Header{}, Body: io.NopCloser(strings.NewReader(plain)), ContentLength: -1,
				Request: req,
			}, nil
		}
		return via.RoundTrip(req)
	}))
	for range 2 {
		if _, err := c.Document(context.Background()); err != nil {
			t.Fatal(err)
		}
	}
	if len(accepts) != 5 || accepts[1] != acceptDocumentJSON || accepts[4] != acceptDocumentJSON {
		t.Errorf("asked for %q; want protobuf once", accepts)
	}
}

// Credentials that differ each time make no 304 count. After two such reads none is conditional, so that a refresh
// is two requests; when they stay the same, it is again.
func TestCredentialsThatDifferEachTime(t *testing.T) {
	server, via := newServer(fakeapi.Typical(1, 1, 1)...)
	n, differ := 0, true
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		if n++; differ {
			req = req.Clone(req.Context())
			req.Header.Set("Authorization", fmt.Sprintf("Nonce %d", n))
		}
		resp, err := via.RoundTrip(req)
		if err == nil {
			resp.Request = req
		}
		return resp, err
	}))
	var codes []string
	for i := range 8 {
		differ = i < 5
		server.TakeRequests()
		readDocument(t, c)
		text := ""
		for _, r := range server.TakeRequests() {
			text += fmt.Sprint(r.Code, " ")
		}
		codes = append(codes, text)
	}
	want := []string{
		"200 200 ", "304 200 304 200 ", "304 200 304 200 ", "200 200 ", "200 200 ", "200 200 ", "200 200 ", "304 304 ",
	}
	if fmt.Sprint(codes) != fmt.Sprint(want) {
		t.Errorf("answers of each reading: %q; want %q", codes, want)
	}
}

// Until something was read once, a request whose connection is reset is sent again, as client-go does. Later it is
// an error at once: others wait for it.
func TestFirstReadIsSentAgain(t *testing.T) {
	_, via := newServer(fakeapi.Typical(1, 1, 1)...)
	resets, sent := 2, 0
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		if sent++; sent <= resets {
			return nil, &net.OpError{Op: "read", Net: "tcp", Err: syscall.ECONNRESET}
		}
		return via.RoundTrip(req)
	}))
	began := time.Now()
	readDocument(t, c)
	if sent != 4 || time.Since(began) < 2*time.Second {
		t.Errorf("%d requests within %v; want 4, and a second before each that is sent again", sent, time.Since(began))
	}
	sent = 0
	if _, _, err := c.Version(context.Background(), "g0001.example.com", "v1"); err == nil || sent != 1 {
		t.Errorf("%v after %d requests; want an error after one: the document was read", err, sent)
	}
}

// That the server sends Audit-Ids is what its last document shows, for a while. One answer of another program, or
// of a time before, does not make absent kinds errors for good.
func TestAuditIDsAge(t *testing.T) {
	_, via := newServer(fakeapi.Typical(1, 1, 1)...)
	audited := "/api" // what begins the paths whose answers have one
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		resp, err := via.RoundTrip(req)
		if err == nil {
			resp.Header.Del(auditID)
			if strings.HasPrefix(req.URL.Path+"/", audited) {
				resp.Header.Set(auditID, "x")
			}
		}
		return resp, err
	}))
	step := func(what string, want bool) {
		t.Helper()
		if got := c.SendsAuditIDs(); got != want {
			t.Errorf("%s: the server sends Audit-Ids: %t; want %t", what, got, want)
		}
	}
	if _, _, err := c.Version(context.Background(), "g0001.example.com", "v1"); err != nil {
		t.Fatal(err)
	}
	step("a version's answer had one", false)
	readDocument(t, c)
	step("the document had one", true)
	old := time.Now().Add(-auditIDMaxAge)
	c.lastAuditID.Store(&old)
	step("that is some time ago", false)
	readDocument(t, c)
	step("the document had one again", true)
	audited = "nowhere"
	readDocument(t, c)
	step("the document had none", false)
	audited = "/api/"
	readDocument(t, c)
	step("the part at /api had one", true)
	audited = "/apis/"
	readDocument(t, c)
	step("the part at /apis had one", true)
}

// No server has an API whose name is longer than a name may be: nobody asks for it, and no error repeats it.
func TestLongNamesAreNotAskedFor(t *testing.T) {
	server, via := newServer(fakeapi.Typical(1, 1, 1)...)
	c := newClient(t, via)
	long := strings.Repeat("x", 1<<20)
	for _, name := range [][2]string{{long, "v1"}, {"example.com", long}, {long, long}} {
		if table, _, err := c.Version(context.Background(), name[0], name[1]); table != nil || err != nil {
			t.Errorf("served %v, %.100v; want that it is not served", table != nil, err)
		}
	}
	if n := len(server.TakeRequests()); n > 0 {
		t.Errorf("%d requests; want none", n)
	}
}

// Credentials in the address of the server are part of each request before a transport gets it, so that a 304 for others
// does not count.
func TestCredentialsInTheAddress(t *testing.T) {
	c, err := NewClient(&rest.Config{Host: "http://me:secret@fake.invalid", QPS: -1}, &http.Client{}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	req, err := c.newRequest(context.Background(), request{path: corePath})
	if err != nil {
		t.Fatal(err)
	}
	if user, password, _ := req.BasicAuth(); user != "me" || password != "secret" {
		t.Errorf("the user is %q with the password %q", user, password)
	}
}

// Groups of one name, which no server should send, are one group with the versions of all.
func TestGroupsOfOneNameAreJoined(t *testing.T) {
	server, via := newServer()
	server.SetForms(fakeapi.Legacy())
	version := `{"name":"a","versions":[{"groupVersion":"a/%[1]s","version":"%[1]s"}]}`
	list := fmt.Sprintf(`{"kind":"APIGroupList","apiVersion":"v1","groups":[`+version+`,`, "v1")
	for _, name := range []string{"v2", "v3"} {
		list += fmt.Sprintf(version, name) + ","
	}
	list = strings.TrimSuffix(list, ",") + "]}"
	c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
		resp, err := via.RoundTrip(req)
		if err == nil && req.URL.Path == "/apis" {
			resp.Body = io.NopCloser(strings.NewReader(list))
			resp.ContentLength = int64(len(list))
			resp.Header = http.Header{"Content-Type": {"application/json"}}
		}
		return resp, err
	}))
	var got []string
	for _, g := range readDocument(t, c).Groups() {
		for _, v := range g.Versions() {
			got = append(got, g.Name()+"/"+v.Name)
		}
	}
	if want := "a/v1 a/v2 a/v3"; strings.Join(got, " ") != want {
		t.Errorf("got %q, want %s", got, want)
	}
}

// The error for an address that is none shows no credentials.
func TestBadAddressShowsNoCredentials(t *testing.T) {
	for host, want := range map[string]string{
		"http://me:secret@fake.invalid:x?token=secret": `the host "fake.invalid:x" must be a URL or a host:port pair`,
		"http://[fake.invalid?token=secret":            `the host "http://[fake.invalid" must be a URL or a host:port pair`,
	} {
		_, err := NewClient(&rest.Config{Host: host}, http.DefaultClient, Options{})
		if err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", host, err, want)
		}
	}
}
