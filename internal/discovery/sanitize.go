// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"syscall"

	"k8s.io/apimachinery/pkg/api/meta"
)

// Transports and rate limiters are code of the program. Their errors may have anything in them: tokens that they have
// sent elsewhere, the output of a program that gets credentials, the address of the server. What a secret looks like
// nobody can say, so the rule is the other way round: of such an error only words are shown that are known to be
// harmless, and numbers of up to three digits. Everything else is an ellipsis.

// sanitizedError is an error of such code. Errors.Is finds what is in it, and errors.As only a
// syscall.Errno, so that nobody gets at the text, or takes it for an answer of this server: it may be about
// something else.
type sanitizedError struct {
	text string
	err  error
}

// errTooLarge is the error for a body that is larger than it may be.
var errTooLarge = errors.New("the response is larger than the limit")

// sanitize returns the error that is shown for one of a transport, of net/http or of a rate limiter.
func sanitize(err error) error {
	var tooLarge *http.MaxBytesError
	if errors.As(err, &tooLarge) {
		return fmt.Errorf("%w of %d bytes (MaxResponseBytes)", errTooLarge, tooLarge.Limit)
	}
	for _, ours := range []error{errOtherHost, errRedirects} {
		if errors.Is(err, ours) {
			return ours
		}
	}
	return &sanitizedError{text: onlyAllowedWords(withoutURLs(err).Error()), err: err}
}

func (e *sanitizedError) Error() string { return e.text }

// Is makes errors.Is find what the hidden error wraps, except a NoMatch.
func (e *sanitizedError) Is(target error) bool {
	return !meta.IsNoMatchError(target) && errors.Is(e.err, target)
}

// As makes errors.As find the number of a system error, for apimachinery's util/net.
func (e *sanitizedError) As(target any) bool {
	number, ok := target.(*syscall.Errno)
	return ok && errors.As(e.err, number)
}

// Timeout and Temporary make it a net.Error, as errors of connections are.
func (e *sanitizedError) Timeout() bool { return isTimeout(e.err) }

// Temporary reports the same as Timeout.
func (e *sanitizedError) Temporary() bool { return e.Timeout() }

const ellipsis = "…"

// onlyAllowedWords returns text with an ellipsis in the place of all that is not known to be harmless.
func onlyAllowedWords(text string) string {
	if len(text) > maxRedactable {
		return fmt.Sprintf("a text of %d bytes, which is too long to be shown", len(text))
	}
	var shown []string
	for _, field := range strings.Fields(text) {
		word := strings.ToLower(strings.Trim(field, `:;,.()[]"'`))
		isAllowed := isShortNumber(word) || strings.Contains(allowedWords, " "+word+" ")
		if !isAllowed {
			field = ellipsis
		}
		repeatsEllipsis := field == ellipsis && len(shown) > 0 && shown[len(shown)-1] == ellipsis
		if !repeatsEllipsis {
			shown = append(shown, field)
		}
	}
	return strings.Join(shown, " ")
}

func isShortNumber(word string) bool {
	return len(word) <= 3 && strings.Trim(word, "0123456789") == ""
}

// allowedWords are those of which the errors of net, net/http, crypto/tls, crypto/x509 and client-go consist, each
// between spaces.
const allowedWords = " " +
	"a access active address after again alert all already an and another any api argument as at attempt " +
	"authentication authority authorization authorize authorizing awaiting aws az azure bad be because been " +
	"before being broken but by bytes ca call can cancel canceled cancelled cannot canceling certificate " +
	"certificates client closed closing code command config configuration connect connection content context " +
	"could credential credentials current data deadline debug decode decoding decrypt denied dial did " +
	"directory disabled dns does down empty encode end endpoint enhance_your_calm eof error errors exceed " +
	"exceeded exceeds exec executable exhausted exit exited expected expired failed failure failures fatal " +
	"fetch fetching file first flow flow_control_error for forbidden frame from frame_size_error gateway gcp " +
	"get getting given goaway grant handshake has have header headers host hostname http http/1.1 http/2 " +
	"http2 https i/o id idle identity illegal in incorrect inappropriate initialize inside insufficient " +
	"interface internal internal_error into invalid io is it key kerberos killed large later layer length " +
	"life limit limiter listener location lookup looks lost malformed many match matching may message method " +
	"mime misbehaving missing must name network new no no_error not now oauth2 of oidc on only open operation " +
	"or original other out over packet parse parsing path peer permission permitted pipe plugin policy port " +
	"possibly post proceed process program protocol protocol_error proxy proxyconnect rate reached read " +
	"reading reason receive received record redirect redirects refresh refreshing refused refused_stream " +
	"reply request requested required reset resolve resource response retries retry return returned root " +
	"route run running scheme secret seen segment sent server service session shut shutdown shutting signal " +
	"signed size so socket something source ssl started starting status stdin stdout stderr stream stopped " +
	"stream_closed such supported syscall system tcp tcp4 tcp6 temporarily temporary than that the then there " +
	"this time timed timeout tls to token tokens too transport trailer transfer try trying trust trusted type " +
	"udp unable unauthorized unavailable unencrypted unexpected unknown unreachable unrecognized unsupported " +
	"until unusable use used user using valid validity value verified verify version wait waiting was when " +
	"while wire with within without would write writing wrong wsarecv x509 x509: yet your "
