// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"k8s.io/client-go/rest"
)

// safe returns err if all of its text may be shown, else an error with the part of the
// text that may be shown. sent are the credentials that were sent.
func (c *Client) safe(err error, sent []string) error {
	if shown := c.redact(err.Error(), sent); shown != err.Error() {
		return errors.New(shown)
	}
	return err
}

// maxErrorText bounds what a dishonest server can write into logs. Honest servers need
// less. A text of more than maxSearched is not shown: to search a body as large as a body
// may be takes seconds and several times its memory.
const (
	maxErrorText = 1000
	maxSearched  = 16 << 10
)

// redact removes credentials from a text of the server, or of a proxy before it, which
// may repeat what was sent. It also replaces what could move a cursor or begin a line.
func (c *Client) redact(text string, sent []string) string {
	if len(text) > maxSearched {
		return fmt.Sprintf("a text of %d bytes, which is too long to be shown", len(text))
	}
	// The longest first: a secret may be a part of another one, and a part of that would
	// remain. Each is removed as it is and as %q writes it.
	secrets := slices.Concat(c.secrets, sent)
	slices.SortFunc(secrets, func(a, b string) int { return cmp.Compare(len(b), len(a)) })
	var pairs []string
	for _, secret := range secrets {
		quoted := strconv.Quote(secret)
		pairs = append(pairs, quoted[1:len(quoted)-1], "[redacted]", secret, "[redacted]")
	}
	text = strings.NewReplacer(pairs...).Replace(text)
	text = printable(text)
	if len(text) > maxErrorText {
		text = strings.ToValidUTF8(text[:maxErrorText-len("...")], "") + "..."
	}
	return text
}

// secretsOf lists the credentials of a configuration that transports may send, in the forms
// in which they are sent.
func secretsOf(cfg *rest.Config) []string {
	secrets := []string{cfg.BearerToken, cfg.Password}
	if cfg.Password != "" {
		secrets = append(secrets, base64.StdEncoding.EncodeToString([]byte(cfg.Username+":"+cfg.Password)))
	}
	return slices.DeleteFunc(secrets, func(secret string) bool { return secret == "" })
}

// harmless reports whether a request header holds no credentials. Any other may: gateways
// ask for keys under names of their own.
func harmless(header string) bool {
	switch header {
	case "Accept", "Accept-Encoding", "Content-Length", "Content-Type", "If-None-Match", "User-Agent",
		"Impersonate-User", "Impersonate-Uid", "Impersonate-Group": // an error about permissions names these
		return true
	}
	return false
}

// repeats reports whether a body has the credentials in it that were sent to get it. The names of
// APIs are shown in errors, in the log and on the debug page. A short password may be a part of
// such a name, and so may what other headers have.
func (c *Client) repeats(body []byte, sent *http.Request) bool {
	credentials := &http.Request{Header: http.Header{"Authorization": sent.Header["Authorization"], "Cookie": sent.Header["Cookie"]}}
	return slices.ContainsFunc(append(sentBy(credentials), c.secrets...), func(secret string) bool {
		return len(secret) >= 16 && bytes.Contains(body, []byte(secret))
	})
}

// sentBy lists the credentials that were sent with a request.
func sentBy(sent *http.Request) []string {
	var secrets []string
	for name, values := range sent.Header {
		if harmless(name) {
			continue
		}
		for _, value := range values {
			scheme, token, _ := strings.Cut(value, " ")
			secrets = append(secrets, value, strings.Trim(token, " ="))
			if pair, err := base64.StdEncoding.DecodeString(token); err == nil && strings.EqualFold(scheme, "Basic") {
				user, password, _ := strings.Cut(string(pair), ":")
				secrets = append(secrets, user, password)
			}
		}
	}
	for _, cookie := range sent.Cookies() {
		secrets = append(secrets, cookie.Value)
	}
	return slices.DeleteFunc(secrets, func(secret string) bool { return len(secret) < minSent })
}

// minSent is the least length of a secret that is removed. A shorter text is likely to
// be a part of a word that explains the error.
const minSent = 4
