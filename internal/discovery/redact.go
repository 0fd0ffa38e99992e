// SPDX-License-Identifier: Apache-2.0

package discovery

import (
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

// redactError returns err if all of its text may be shown, and otherwise an error with a text that may. credentials are
// those that were sent.
func (c *Client) redactError(err error, credentials []string) error {
	redacted := c.redact(err.Error(), credentials)
	if redacted == err.Error() {
		return err
	}
	return errors.New(redacted)
}

const (
	// maxErrorText bounds what a dishonest server can write into logs. Honest servers need less.
	maxErrorText = 1000
	// maxRedactable is the longest text that is searched for credentials. A longer one is not shown: to search a body
	// as large as a body may be takes seconds and several times its memory.
	maxRedactable = 16 << 10
)

// redact removes credentials from a text of the server, or of a proxy before it, which
// may repeat what was sent. It also replaces what could move a cursor or begin a line.
func (c *Client) redact(text string, credentials []string) string {
	if len(text) > maxRedactable {
		return fmt.Sprintf("a text of %d bytes, which is too long to be shown", len(text))
	}
	// The longest first: a secret may be a part of another one, and a part of that would
	// remain. Each is removed as it is and as %q writes it.
	secrets := slices.Concat(c.secrets, credentials)
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

// isHarmlessHeader reports whether a request header holds no credentials. Any other may: gateways
// ask for keys under names of their own.
func isHarmlessHeader(header string) bool {
	switch header {
	case "Accept", "Accept-Encoding", "Content-Length", "Content-Type", "If-None-Match", "User-Agent",
		"Impersonate-User", "Impersonate-Uid", "Impersonate-Group": // an error about permissions names these
		return true
	}
	return false
}

// credentialsOf lists the credentials that were sent with a request, in the forms in which a server may repeat them.
func credentialsOf(sent *http.Request) []string {
	var secrets []string
	for name, values := range sent.Header {
		if isHarmlessHeader(name) {
			continue
		}
		for _, value := range values {
			secrets = append(secrets, secretsInHeader(value)...)
		}
	}
	for _, cookie := range sent.Cookies() {
		secrets = append(secrets, cookie.Value)
	}
	return slices.DeleteFunc(secrets, func(secret string) bool { return len(secret) < minSecretLength })
}

// secretsInHeader lists what is secret in the value of a header: all of it, what follows the scheme, and user and
// password of basic authentication.
func secretsInHeader(value string) []string {
	scheme, token, _ := strings.Cut(value, " ")
	secrets := []string{value, strings.Trim(token, " =")}
	if !strings.EqualFold(scheme, "Basic") {
		return secrets
	}
	pair, err := base64.StdEncoding.DecodeString(token)
	if err != nil {
		return secrets
	}
	user, password, _ := strings.Cut(string(pair), ":")
	return append(secrets, user, password)
}

// minSecretLength is the least length of a secret that is removed. A shorter text is likely to be a part of a word that
// explains the error.
const minSecretLength = 4
