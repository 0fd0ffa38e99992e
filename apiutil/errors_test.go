// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/fakeapi/bubble"
)

// How much of the truth gets past a fault.
type faultReach int

const (
	hidesAll  faultReach = iota // nothing: every lookup that reads must fail
	hidesSome                   // what does get through must be right
	hidesNone                   // everything: the fault is one of form
)

// A faultCase is a row of the table of faults.
type faultCase struct {
	name  string
	fault fakeapi.Fault
	match func(*http.Request) bool // nil: every request
	reach faultReach
	is    error            // the cause, if a caller may want to tell it apart
	typed func(error) bool // of apierrors, if it is an error of such a type
	later int              // after how many seconds the server asks to come back
	brief bool             // it meets one form of lookup: all go the same way, and there is a lot to do
}

func faultCases() []faultCase {
	roots := fakeapi.At("/api", "/apis")
	cases := []faultCase{
		{name: "refused", fault: fakeapi.Refused(), is: syscall.ECONNREFUSED},
		{name: "reset in mid-body", fault: fakeapi.ResetMidBody(), is: syscall.ECONNRESET},
		{name: "timeout", fault: fakeapi.Timeout(), is: context.DeadlineExceeded},
		{name: "slow drip", fault: fakeapi.SlowDrip(100 * time.Millisecond)},
		{name: "401", fault: fakeapi.Status(401, 0), typed: apierrors.IsUnauthorized},
		{name: "403", fault: fakeapi.Status(403, 0), typed: apierrors.IsForbidden},
		{name: "404 on /apis", fault: fakeapi.Status(404, 0), match: fakeapi.At("/apis"), reach: hidesSome},
		{name: "404 on /apis as text", fault: fakeapi.StatusText(404), match: fakeapi.At("/apis"), reach: hidesSome},
		{name: "429", fault: fakeapi.Status(429, 3), typed: apierrors.IsTooManyRequests, later: 3},
		{name: "500", fault: fakeapi.Status(500, 0)},
		{name: "502 as a page", fault: fakeapi.StatusText(502)},
		{name: "503", fault: fakeapi.Status(503, 0)},
		{name: "503 with Retry-After", fault: fakeapi.Status(503, 2), typed: apierrors.IsServiceUnavailable, later: 2},
		{name: "truncated", fault: fakeapi.Truncated(), is: io.ErrUnexpectedEOF},
		{name: "truncated, Content-Length too", fault: fakeapi.TruncatedClean()},
		{name: "not JSON", fault: fakeapi.NotJSON()},
		{name: "garbage protobuf", fault: fakeapi.GarbageProtobuf()},
		{name: "wrong Content-Type", fault: fakeapi.WrongContentType(), reach: hidesNone},
		{name: "wrong kind", fault: fakeapi.WrongKind()},
		{name: "empty body", fault: fakeapi.Empty200()},
		{name: "{}", fault: fakeapi.EmptyObject()},
		{name: "login page", fault: fakeapi.LoginPage()},
		{name: "304 nobody asked for", fault: fakeapi.Unexpected304(), match: unconditional, reach: hidesSome},
		{
			name: "304 nobody asked for, with a body", fault: answering(304, "", errors.New("was read")),
			match: unconditional, reach: hidesSome, brief: true,
		},
		{name: "101, whose body is the connection", fault: answering(101, "", errors.New("was read")), brief: true},
		{name: "over the limit", fault: fakeapi.Huge(1 << 20)},
		{name: "redirect to another host", fault: fakeapi.Redirect("http://elsewhere.invalid/apis")},
		{
			name: "redirect of /apis to another host", fault: fakeapi.Redirect("//elsewhere.invalid/apis"),
			match: fakeapi.At("/apis"), reach: hidesSome,
		},
		{
			name: "redirect of /apis to another port", fault: fakeapi.Redirect("http://fake.invalid:81/apis"),
			match: fakeapi.At("/apis"), reach: hidesSome,
		},
		{name: "redirect of /apis on the host", fault: moved(), match: notMoved, reach: hidesNone},
		{name: "empty group list", fault: fakeapi.EmptyGroupList(), match: roots, reach: hidesSome},
		{name: "null group list", fault: fakeapi.NullItems(), match: roots, reach: hidesSome},
		{name: "duplicate groups", fault: fakeapi.DuplicateGroups(), reach: hidesNone},
	}
	for _, length := range []int{970, 5000, 17 << 10} {
		fault := fakeapi.Text(403, asStatus(strings.Repeat("no ", length/3)))
		cases = append(
			cases,
			faultCase{name: fmt.Sprintf("403 with %d bytes", length), fault: fault, typed: apierrors.IsForbidden, brief: true},
		)
	}
	for name, fault := range notFounds() {
		cases = append(cases, faultCase{name: "404, " + name, fault: fault, brief: true})
	}
	for name, own := range ownErrors() {
		cases = append(cases, faultCase{name: "a transport's own " + name, fault: answering(0, "", own), brief: true},
			faultCase{name: "a body's own " + name, fault: answering(200, "", own), brief: true})
	}
	// however much was read of it
	for _, body := range []string{"404 page not found\n", `{"kind":"Status","apiVersion":"v1","code":404}`} {
		cases = append(cases, faultCase{name: "404 that breaks off after " + body[:6], fault: answering(404, body, io.ErrUnexpectedEOF), is: io.ErrUnexpectedEOF, brief: true})
	}
	return cases
}

// answering is a fault: an answer whose body breaks off, or none.
func answering(code int, body string, err error) fakeapi.Fault {
	return fakeapi.Func("own", func(*http.Request) (*http.Response, error) {
		if code == 0 {
			return nil, err
		}
		broken := io.MultiReader(strings.NewReader(body), iotest.ErrReader(err))
		return &http.Response{
			StatusCode: code, Header: http.Header{}, ProtoMajor: 1, ContentLength: -1, Body: io.NopCloser(broken),
		}, nil
	})
}

// ownStatus is an error of the program that looks like an answer of an API server.
type ownStatus struct{ status metav1.Status }

func (e ownStatus) Error() string         { return "token source: not found" }
func (e ownStatus) Status() metav1.Status { return e.status }

// ownErrors are errors of a program's own transport, about something else than an API of this server.
func ownErrors() map[string]error {
	notFound := apierrors.NewNotFound(schema.GroupResource{Resource: "secrets"}, "token")
	return map[string]error{
		"NotFound": notFound, "NotFound, joined": errors.Join(errors.New("a"), fmt.Errorf("x: %w", notFound)),
		"type of error":   fmt.Errorf("y: %w", ownStatus{notFound.ErrStatus}),
		"NoMatch":         &meta.NoKindMatchError{},
		"NoMatch, joined": errors.Join(errors.New("a"), &meta.NoResourceMatchError{}),
	}
}

func unconditional(req *http.Request) bool { return req.Header.Get("If-None-Match") == "" }

func moved() fakeapi.Fault {
	return fakeapi.Func("moved", func(*http.Request) (*http.Response, error) {
		return &http.Response{
			StatusCode: http.StatusFound, Body: http.NoBody,
			Header: http.Header{"Location": {"http://fake.invalid/apis?moved"}},
		}, nil
	})
}

func notMoved(req *http.Request) bool { return req.URL.Path == "/apis" && req.URL.RawQuery == "" }

var (
	faultKnown    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Known"}
	faultNewKind  = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "New"}
	faultNewGroup = schema.GroupVersionKind{Group: "example.org", Version: "v1", Kind: "Newer"}
	faultAbsent   = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Absent"}
)

// TestFaultIsNeverNoMatch meets each fault with each form of lookup, at each stage, on both kinds of server: never
// NoMatch for what the fault hid, what is known is served, and the first lookup after the fault is right again.
func TestFaultIsNeverNoMatch(t *testing.T) {
	before := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, before) }) // after the parallel ones
	for mode, forms := range bothModes {
		for i, fc := range faultCases() {
			forms.StatusNotFound = i%2 == 0 // the server's own; most cases bring theirs
			t.Run(mode+"/"+fc.name, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					defer time.Sleep(time.Minute) // reads that nobody waits for end by their timeouts
					for _, stage := range []string{"at first use", "after warm-up", "after Reset"} {
						for i, form := range lookupForms(faultKnown) {
							if strings.Contains(form.name, "sFor ") && stage != "after warm-up" || fc.brief &&
								!strings.HasPrefix(form.name, "RESTMapping ") {
								continue
							}
							wanted := []schema.GroupVersionKind{faultNewKind, faultNewGroup, faultAbsent}
							switch {
							case strings.HasPrefix(form.name, "ResourceFor "):
								wanted = []schema.GroupVersionKind{faultNewKind, faultAbsent}
							case !strings.HasPrefix(form.name, "RESTMapping "):
								wanted = wanted[:1]
							}
							for _, kind := range wanted {
								f := &faultPlay{
									faultCase: fc, stage: stage, known: form, form: lookupForms(kind)[i], served: kind != faultAbsent,
								}
								f.play(t, forms)
							}
						}
					}
				})
			})
		}
	}
}

// A faultPlay is one encounter of a mapper with a fault.
type faultPlay struct {
	faultCase
	stage       string     // what has happened to the mapper when the fault begins
	known, form lookupForm // of a kind that the mapper knows after warm-up, and of one that it cannot know
	served      bool       // the other one is served

	server *fakeapi.Server
	mapper *apiutil.DynamicRESTMapper
}

func (f *faultPlay) play(t *testing.T, forms fakeapi.Forms) {
	t.Helper()
	f.server = fakeapi.New(
		fakeGroup("", fakeVersion("v1", "Pod")),
		fakeGroup("example.com", fakeVersion("v1", "Known"), fakeVersion("v1alpha1", "Other")),
	)
	f.server.SetForms(forms)
	f.mapper = newMapper(
		t, f.server, apiutil.DynamicRESTMapperOptions{RequestTimeout: 5 * time.Second, MaxResponseBytes: 64 << 10},
	)
	if f.stage != "at first use" {
		lookupForms(faultKnown)[0].wantAnswer(t, f.mapper, "warming up") // in any group, which reads all
	}
	f.server.PutVersion("example.com", fakeVersion("v1", "Known", "New"))
	f.server.PutVersion("example.org", fakeVersion("v1", "Newer"))
	if f.stage == "after Reset" {
		f.mapper.Reset()
	}
	f.server.TakeRequests()
	match := f.match
	if match == nil {
		match = fakeapi.All()
	}
	heal := f.server.SetFault(match, f.fault)
	f.wantKnown(t)
	start := time.Now()
	answer, err := f.form.ask(context.Background(), f.mapper)
	if took := time.Since(start); f.later > 0 && f.stage != "at first use" && took > 0 {
		t.Errorf("%s, %s: took %v; want no wait, others wait for the same request: client-go would sleep inside of it",
			f.form.name, f.stage, took)
	}
	f.check(t, answer, err)
	f.wantKnown(t)
	heal()
	if f.served {
		f.form.wantAnswer(t, f.mapper, f.stage+", healed")
	} else if answer, err := f.form.ask(context.Background(), f.mapper); !meta.IsNoMatchError(err) {
		t.Errorf("%s, %s, healed: %q, %v; want NoMatch", f.form.name, f.stage, answer, err)
	}
	f.known.wantAnswer(t, f.mapper, f.stage+", healed")
}

// wantKnown looks up what the mapper knows, if it knows something. Only after a Reset may
// the mapper try the server first.
func (f *faultPlay) wantKnown(t *testing.T) {
	t.Helper()
	if f.stage == "at first use" {
		return
	}
	before := len(f.server.Requests())
	f.known.wantAnswer(t, f.mapper, f.stage+", during the fault")
	if n := len(f.server.Requests()) - before; n > 0 && f.stage == "after warm-up" && f.reach != hidesNone {
		t.Errorf("%s, %s: %d requests for what is known", f.known.name, f.stage, n)
	}
}

// check checks what a lookup of something that the mapper cannot know has found during the fault.
func (f *faultPlay) check(t *testing.T, answer string, err error) {
	t.Helper()
	form, noMatch := f.form, meta.IsNoMatchError(err)
	for _, r := range f.server.Requests() { // client-go's transport would send the credentials along
		if r.Host != "fake.invalid" {
			t.Errorf("%s, %s: a request to %s, with Authorization %q", form.name, f.stage, r.Host, r.Authorization)
		}
	}
	switch {
	case f.reach != hidesAll && (err == nil && f.served && answer == form.want || noMatch && !f.served):
		return
	case err == nil, noMatch, f.reach == hidesNone, form.what == "singular" && answer != form.subject:
		t.Errorf("%s, %s, of a kind that is served: %t; got %q, %v; want an error that is no NoMatch, or the truth "+
			"where that gets past the fault",
			form.name, f.stage, f.served, answer, err)
		return
	}
	for _, want := range []string{"/api", form.group, form.version} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%s, %s: no %q in: %v", form.name, f.stage, want, err)
		}
	}
	if strings.Contains(err.Error(), "was read") {
		t.Errorf("%s, %s: a body was read that may have no end: %v", form.name, f.stage, err)
	}
	if strings.Contains(err.Error(), fakeapi.Token) || apierrors.IsNotFound(err) {
		t.Errorf("%s, %s: want no token %s in it, and no apierrors.IsNotFound: %v", form.name, f.stage, fakeapi.Token, err)
	}
	if typed := f.typed == nil || f.typed(err); !typed || len(err.Error()) > 5000 {
		t.Errorf("%s, %s: has the type of its code: %t; want that, and 5000 bytes at most, which is 1000 for each of "+
			"four reads and the rest, of: %v",
			form.name, f.stage, typed, err)
	}
	if seconds, said := apierrors.SuggestsClientDelay(err); seconds != f.later || said != (f.later > 0) || said &&
		!strings.Contains(err.Error(), fmt.Sprintf("%d seconds", f.later)) {
		t.Errorf("%s, %s: says to come back after %d seconds (%t), the server said %d: %v",
			form.name, f.stage, seconds, said, f.later, err)
	}
	if f.is != nil && f.stage == "at first use" && !errors.Is(err, f.is) {
		t.Errorf("%s, %s: errors.Is does not find %q in: %v", form.name, f.stage, f.is, err)
	}
	var failed *apiutil.ErrResourceDiscoveryFailed
	if gv := (schema.GroupVersion{Group: form.group, Version: form.version}); f.stage == "after warm-up" && gv.Version != "" &&
		(!errors.As(err, &failed) || (*failed)[gv] == nil || !strings.Contains(err.Error(), "/apis/"+gv.String())) {
		t.Errorf("%s, %s: it does not name the version: %v", form.name, f.stage, err)
	}
}

// asBody is a 404 with that body.
func asBody(contentType, body string) fakeapi.Fault {
	return echo(404, contentType, func(string) string { return body })
}

// notFounds are answers with code 404 that do not come from an API server, or that do not say what it serves.
func notFounds() map[string]fakeapi.Fault {
	const page = "<!DOCTYPE html>\n<title>404</title>"
	status := asStatus("the server could not find the requested resource")
	return map[string]fakeapi.Fault{
		"an empty body":         fakeapi.Empty(404),
		"blanks":                fakeapi.Text(404, " \r\n\t\n"),
		"a page":                fakeapi.StatusText(404),
		"a page with a charset": asBody("Text/HTML; charset=utf-8", page),
		"a page that says JSON": asBody("application/json", page),
		"default backend - 404": fakeapi.Text(404, "default backend - 404"),
		"the text and more":     fakeapi.Text(404, "404 page not found: no route to /apis/example.com"),
		"no route, JSON":        asBody("application/json", `{"message":"no Route matched with those values"}`),
		"an empty object":       asBody("application/json", "{}"),
		"a string":              asBody("application/json", `"404 page not found"`),
		"another kind":          asBody("application/json", strings.Replace(status, `"Status"`, `"Error"`, 1)),
		"half a Status":         asBody("application/json", status[:len(status)/2]),
		"a Status, then a page": asBody("application/json", status+"<html></html>"),
		"a list where none can be": asBody(
			"application/json", `{"kind":"APIResourceList","groupVersion":"example.com/v1","resources":[]}`,
		),
		"protobuf without a Status": asBody("application/vnd.kubernetes.protobuf", "k8s\x00"),
	}
}

// absences are what an API server says of a path that it does not serve.
func absences() map[string]fakeapi.Fault {
	status := asStatus("the server could not find the requested resource")
	return map[string]fakeapi.Fault{
		"nothing":               fakeapi.Empty(404),
		"a Status":              fakeapi.Status(404, 0),
		"a Status and blanks":   asBody("application/json", "\n"+status+" \n"),
		"a Status of no type":   asBody("", status),
		"the text":              fakeapi.Text(404, "404 page not found\n"),
		"the text without end":  fakeapi.Text(404, "404 page not found"),
		"the text with blanks":  fakeapi.Text(404, " 404 page not found\r\n\n"),
		"the text of no type":   asBody("", "404 page not found\n"),
		"the text, as unknown":  asBody("application/octet-stream", "404 page not found\n"),
		"the text, as any JSON": asBody("application/json", "404 page not found\n"),
	}
}

// A server that is only an extension server, k8s.io/apiserver with an empty delegate, answers each path that it does
// not serve, /api included, with the index of its paths. With an Audit-Id that is the server's own 404; without one it
// may be that of any gateway.
func TestExtensionServerAnswersWithItsPaths(t *testing.T) {
	index := asBody("application/json", `{"paths":["/apis","/apis/example.com","/apis/example.com/v1","/healthz"]}`)
	for whose, audited := range map[fakeapi.AuditIDs]bool{fakeapi.AuditAll: true, fakeapi.AuditNone: false} {
		eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
			bubble.Run(t, func(t *testing.T) {
				forms.AuditIDs = whose
				server := fakeapi.New(fakeGroup("example.com", fakeVersion("v1", "Foo", "Bar")))
				server.SetForms(forms)
				unserved := func(req *http.Request) bool {
					return !slices.Contains([]string{"/apis", "/apis/example.com", "/apis/example.com/v1"}, req.URL.Path)
				}
				server.SetFault(unserved, fakeapi.Audited(index))
				m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
				err := m.Refresh(t.Context())
				if !audited {
					if err == nil {
						t.Error("without an Audit-Id a refresh succeeds; want an error, because a gateway may have answered")
					}
					return
				}
				if err != nil {
					t.Errorf("a refresh: %v", err)
				}
				wantServed(t, m, fooKind, barKind)
				wantAbsent(t, m, newKind, lateKind)
			})
		})
	}
}

// A 404 of the API server is believed, whatever its form and its Content-Type: if it has an Audit-Id,
// or if no answer of the server has one and the document can be read. Where others have one, it is an
// answer of somebody else (R6). kube-aggregator's own 404 may be empty: only an Audit-Id shows whose it is.
func TestTheServerSaysAbsent(t *testing.T) {
	for name, fault := range absences() {
		t.Run(name, func(t *testing.T) {
			eachServer(t, func(t *testing.T, _ *fakeapi.Server) {
				for _, whose := range []fakeapi.AuditIDs{
					fakeapi.AuditAll, fakeapi.AuditTwice, fakeapi.AuditNone, fakeapi.AuditSuccesses,
				} {
					forms := bothModes[modeOf(t)]
					forms.AuditIDs = whose
					server := newServer(forms)
					m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
					readAll(t, m)
					server.Remove(fooKind.Group)
					server.SetFault(fakeapi.InGroup(fooKind.Group), fakeapi.Audited(fault))
					m.Reset()
					if whose != fakeapi.AuditSuccesses && (whose != fakeapi.AuditNone || name != "nothing") {
						wantAbsent(t, m, fooKind, barKind)
						if _, err := m.RESTMapping(fooKind.GroupKind()); !meta.IsNoMatchError(err) {
							t.Errorf("Audit-Ids %v, without a version: %v; want NoMatch", whose, err)
						}
						continue
					}
					wantServed(t, m, fooKind, barKind)
					if err := miss(m, fooKind.Group, "v1"); err == nil || meta.IsNoMatchError(err) ||
						!strings.Contains(err.Error(), "a proxy or a gateway has answered") {
						t.Errorf("Audit-Ids %v, a kind that was never served: %v; want an error that says who has answered", whose, err)
					}
				}
			})
		})
	}
}
