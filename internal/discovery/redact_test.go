// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"context"
	"encoding/base64"
	"net/http"
	"testing"
)

// What a request has sent is not shown, in whichever form the server repeats it: all of a header, the part behind its
// scheme, or a decoded password. If a secret is a part of another one, nothing of either remains. Of three letters and
// less any text may have a part, so these remain.
func TestSecretsOfARequestAreNotShown(t *testing.T) {
	basic := func(pair string) string { return "Basic " + base64.StdEncoding.EncodeToString([]byte(pair)) }
	for name, test := range map[string]struct {
		config       []string
		header, sent string
		text, want   string
	}{
		"a token":              {nil, "Authorization", "Bearer abcd", "no abcd, no Bearer abcd", "no [redacted], no [redacted]"},
		"a short token":        {nil, "Authorization", "Bearer abc", "no abc", "no abc"},
		"a password":           {nil, "Authorization", basic("me:word"), "me and word", "me and [redacted]"},
		"a user":               {nil, "Authorization", basic("user:pw"), "user and pw", "[redacted] and pw"},
		"a scheme in any case": {nil, "Authorization", "b" + basic("me:word")[1:], "me and word", "me and [redacted]"},
		"another scheme":       {nil, "Authorization", "X" + basic("me:word")[1:], "me and word", "me and word"},
		"no base64":            {nil, "Authorization", "Basic me:word", "no me:word", "no [redacted]"},
		"a key of a gateway":   {nil, "X-Key", "k-12", "no k-12", "no [redacted]"},
		"a cookie":             {nil, "Cookie", "a=b; c=word", "no word", "no [redacted]"},
		"a harmless header":    {nil, "Accept", "word", "a word", "a word"},
		"a quoted secret":      {nil, "X-Key", `a"b\c`, `no "a\"b\\c" or a"b\c`, `no "[redacted]" or [redacted]`},
		"a part of another":    {[]string{"word", "word-and-more"}, "X-Key", "word-and-more-still", "no word-and-more, no word-and-more-still, no word", "no [redacted], no [redacted], no [redacted]"},
		"of the configuration": {[]string{"e"}, "X-Key", "none", "an e", "an [redacted]"},
	} {
		req, err := http.NewRequestWithContext(context.Background(), http.MethodGet, "http://fake.invalid", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(test.header, test.sent)
		c := &Client{secrets: test.config}
		if got := c.redact(test.text, credentialsOf(req)); got != test.want {
			t.Errorf("%s, sent as %s: %s: %s is shown as %s; want %s", name, test.header, test.sent, test.text, got, test.want)
		}
	}
}
