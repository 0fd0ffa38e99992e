// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-logr/logr/funcr"
	"go.uber.org/goleak"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/klog/v2"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// wantBound looks up something absent, and wants the error to name a bound.
func wantBound(t *testing.T, m meta.RESTMapper, group, bound string) {
	t.Helper()
	_, err := m.RESTMapping(schema.GroupKind{Group: group, Kind: "Absent"})
	if err == nil || meta.IsNoMatchError(err) || !strings.Contains(err.Error(), bound) || strings.ContainsAny(err.Error(), "\n\x1b") || len(err.Error()) > 4000 {
		t.Errorf("group %q: got %q, want an error with %q in it", group, err, bound)
	}
}

// What exceeds a bound is an error of its version. Nothing else is lost.
func TestWhatExceedsABoundIsAnError(t *testing.T) {
	long := strings.Repeat("x", 300)
	eachMode(t, bothModes, func(t *testing.T, forms fakeapi.Forms) {
		many := fakeapi.Group{Name: "many.example.com"}
		for i := range 70 {
			many.Versions = append(many.Versions, fakeVersion(fmt.Sprintf("v%d", i+1), fmt.Sprintf("Many%d", i+1)))
		}
		control := fakeVersion("v1", "Control")
		control.Resources[0].Kind = "Red\x1b[31m"
		plural := fakeVersion("v1", "Plural")
		plural.Resources[0].Name = long
		server := newServer(forms)
		for _, g := range []fakeapi.Group{
			fakeGroup("kind.example.com", fakeVersion("v1", "Beside", "K"+long), fakeVersion("v2", "Fine")),
			fakeGroup("plural.example.com", plural),
			fakeGroup("version.example.com", fakeVersion("v1", "Short"), fakeVersion("v"+long, "Lost")),
			fakeGroup("control.example.com", control),
			fakeGroup("line\n.example.com", fakeVersion("v1", "Line")),
			fakeGroup(long, fakeVersion("v1", "Long")),
			many,
		} {
			server.Put(g)
		}
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{})
		readAll(t, m)
		for _, gk := range []schema.GroupKind{
			fooKind.GroupKind(), otherKind.GroupKind(), {Group: "kind.example.com", Kind: "Fine"}, {Group: "version.example.com", Kind: "Short"},
			{Group: "many.example.com", Kind: "Many1"}, {Group: "many.example.com", Kind: "Many64"},
		} {
			if _, err := m.RESTMapping(gk); err != nil {
				t.Error(err)
			}
		}
		const tooLong = "more than 253 bytes"
		wantBound(t, m, "kind.example.com", tooLong)
		wantBound(t, m, "plural.example.com", tooLong)
		wantBound(t, m, "version.example.com", tooLong)
		wantBound(t, m, "control.example.com", "can't be printed")
		wantBound(t, m, "many.example.com", "more than 64 versions")
		wantServed(t, m, schema.GroupVersionKind{Group: "many.example.com", Version: "v70", Kind: "Many70"})
		wantServed(t, m, fooKind)

		if _, err := m.KindFor(schema.GroupVersionResource{Resource: "absents"}); err == nil || meta.IsNoMatchError(err) || len(err.Error()) > 10_000 {
			t.Errorf("in all groups: %v", err)
		}
		for gv, err := range m.Status().FailedGroupVersions {
			if len(gv.String()) > 600 || strings.ContainsAny(gv.String()+err.Error(), "\n\x1b") {
				t.Errorf("%q: %q", gv, err)
			}
		}
	})
}

// An ETag that is too long is not sent back: a server may refuse a request with such a
// header, each time.
func TestLongETagIsNotSentBack(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	for size, want := range map[int]bool{200: true, 2 << 20: false} {
		server := newServer(fakeapi.Aggregated())
		next, sent := server.Client().Transport, false
		m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
			sent = sent || len(req.Header.Get("If-None-Match")) > 100
			req = req.Clone(req.Context())
			req.Header.Del("If-None-Match")
			resp, err := next.RoundTrip(req)
			if err == nil {
				resp.Header.Set("ETag", `"`+strings.Repeat("x", size)+`"`)
			}
			return resp, err
		}), apiutil.DynamicRESTMapperOptions{})
		for range 2 {
			m.Reset()
			wantServed(t, m, fooKind)
		}
		if sent != want {
			t.Errorf("an ETag of %d bytes was sent back: %v", size, sent)
		}
	}
}

// Whatever header of a request a server repeats, it gets into no error and no log line.
func TestNoHeaderIsEchoed(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	secrets := []string{fakeapi.Token, "key-of-a-gateway", "cookie-of-a-session"}
	var logged strings.Builder
	defer klog.CaptureState().Restore()
	klog.SetLogger(funcr.New(func(prefix, args string) { logged.WriteString(prefix + args + "\n") }, funcr.Options{}))
	server := newServer(fakeapi.Aggregated())
	next := server.Client().Transport
	var failing bool
	m := newMapperThrough(t, server, through(func(req *http.Request) (*http.Response, error) {
		req = req.Clone(req.Context())
		req.Header.Set("X-Api-Key", secrets[1])
		req.Header.Set("Cookie", "a=b; session="+secrets[2])
		resp, err := next.RoundTrip(req)
		if err != nil {
			return nil, err
		}
		said := strings.Join(secrets, " ") + " \x1b[2J\nI1122 forged"
		if failing {
			resp.StatusCode, resp.Body = http.StatusForbidden, io.NopCloser(strings.NewReader(asStatus(said)))
			resp.Header.Set("Content-Type", "application/json")
		}
		resp.Header.Set("Warning", `299 - "`+strings.Join(secrets, " ")+`"`)
		resp.Request = req
		return resp, nil
	}), apiutil.DynamicRESTMapperOptions{})
	wantServed(t, m, fooKind)
	failing = true
	wantSilence(t, m, secrets...)
	if err := lookUp(m, lateKind); strings.ContainsAny(err.Error(), "\x1b\n") {
		t.Errorf("got %q", err)
	}
	for _, secret := range secrets {
		if strings.Contains(logged.String(), secret) {
			t.Errorf("%q was logged:\n%s", secret, logged.String())
		}
	}
}

// The text of an error names ten group-versions.
func TestErrorNamesTenGroupVersions(t *testing.T) {
	failed := apiutil.ErrResourceDiscoveryFailed{}
	for i := range 12 {
		failed[schema.GroupVersion{Group: fmt.Sprintf("g%02d", i), Version: "v1"}] = errors.New("failed")
	}
	if text := failed.Error(); !strings.HasSuffix(text, "g08/v1: failed, g09/v1: failed and 2 more") || len(failed.Unwrap()) != 12 {
		t.Errorf("got %q", text)
	}
}

// The causes that a caller may want to tell apart can be told apart.
func TestCausesCanBeToldApart(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	server := fakeapi.New(fakeGroup("", fakeVersion("v1", "Pod")))
	for _, test := range []struct {
		fault   fakeapi.Fault
		timeout time.Duration
		is      error
	}{
		{fakeapi.Refused(), time.Minute, syscall.ECONNREFUSED},
		{fakeapi.ResetMidBody(), time.Minute, syscall.ECONNRESET},
		{fakeapi.Timeout(), time.Millisecond, context.DeadlineExceeded},
		{fakeapi.Truncated(), time.Minute, io.ErrUnexpectedEOF},
	} {
		m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RequestTimeout: test.timeout})
		server.ClearFaults()
		server.SetFault(fakeapi.All(), test.fault)
		if _, err := m.RESTMapping(schema.GroupKind{Kind: "Pod"}, "v1"); !errors.Is(err, test.is) {
			t.Errorf("%s: %v is not %v", test.fault, err, test.is)
		}
	}
}
