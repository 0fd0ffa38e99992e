// SPDX-License-Identifier: Apache-2.0

package apiutil_test

import (
	"context"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A browser shows the page as it is meant. With FRESHMAPPER_SCREENSHOT set to a folder,
// it leaves pictures there to look at.
func TestDebugPageInBrowser(t *testing.T) {
	browser, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("no chromium in PATH")
	}
	groups := append(fakeapi.Typical(30, 2, 3), fakeGroup("new.example.com", fakeVersion("v1", "New")))
	server := fakeapi.New(groups...)
	m := newMapper(t, server, apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Hour})
	page := httptest.NewServer(m.DebugHandler())
	defer page.Close()
	readAll(t, m)
	server.Remove("new.example.com")
	readAll(t, m)
	_ = lookUp(m, newKind)
	server.SetFault(fakeapi.Under("/apis/down.example.com/v1"), fakeapi.Status(503, 0))
	down := fakeVersion("v1", "Down")
	down.Stale = true
	server.PutVersion("down.example.com", down)
	readAll(t, m)

	dom := browse(t, browser, "--dump-dom", page.URL)
	for _, want := range []string{"<h1>RESTMapper</h1>", "new.example.com/v1.New", "down.example.com/v1", "on each miss, every 1h0m0s (off: Start was not called)"} {
		if !strings.Contains(dom, want) {
			t.Errorf("no %q in the page:\n%s", want, dom)
		}
	}
	if folder := os.Getenv("FRESHMAPPER_SCREENSHOT"); folder != "" {
		browse(t, browser, "--window-size=1200,1100", "--screenshot="+filepath.Join(folder, "debug.png"), page.URL)
		browse(t, browser, "--window-size=420,1100", "--screenshot="+filepath.Join(folder, "debug-narrow.png"), page.URL)
	}
}

func browse(t *testing.T, browser string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	flags := []string{
		"--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--user-data-dir=" + t.TempDir(),
	}
	out, err := exec.CommandContext(ctx, browser, append(flags, args...)...).Output()
	if err != nil {
		t.Fatalf("%s: %v", browser, err)
	}
	return string(out)
}
