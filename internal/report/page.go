// SPDX-License-Identifier: Apache-2.0

package report

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Page serves what page returns, as HTML or, if the request asks for that, as JSON. page is told whether the result may
// be long, which it may be in JSON.
func Page(page func(long bool) any) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		format := cmp.Or(req.URL.Query().Get("format"), req.Header.Get("Accept"))
		asJSON := strings.Contains(format, "json") && !strings.Contains(format, "html")
		w.Header().Set("Cache-Control", "no-store")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
		w.Header().Set("Content-Type", "application/json")
		if !asJSON {
			w.Header().Set("Content-Type", "text/html; charset=utf-8")
			fmt.Fprintln(w, `<!doctype html><html lang="en"><meta name="color-scheme" content="light dark">`+
				`<title>RESTMapper</title><pre>`)
			defer fmt.Fprintln(w, "</pre></html>")
		}
		encoder := json.NewEncoder(w) // it escapes what has a meaning in HTML
		encoder.SetIndent("", "  ")
		encoder.Encode(page(asJSON)) //nolint:errcheck // Nobody is left to be told.
	})
}
