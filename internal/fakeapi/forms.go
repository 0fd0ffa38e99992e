// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"mime"
	"net/http"
	"slices"
	"strings"
)

// Forms is which forms of documents a server sends. Every server sends the legacy
// documents in JSON; the zero value sends nothing else.
type Forms struct {
	V2       bool // aggregated documents, apidiscovery.k8s.io/v2
	V2beta1  bool // aggregated documents, apidiscovery.k8s.io/v2beta1
	Protobuf bool // every document in protobuf as well
	ETag     bool // aggregated documents have an ETag, and If-None-Match works
	Vary     bool // aggregated documents have Vary: Accept

	AuditIDs AuditIDs // which answers have an Audit-Id

	// StatusNotFound reports whether each 404 is a metav1.Status without details, as from
	// Kubernetes 1.38 on (kubernetes#138219). Before that most are plain text.
	StatusNotFound bool

	// NoWatchList reports whether a watch that is to begin with the objects there are is refused, as by servers
	// without the feature gate WatchList (KEP-3157). client-go then lists them.
	NoWatchList bool
}

// AuditIDs is which answers have an Audit-Id header. A kube-apiserver since 1.21, and whatever
// else is built on k8s.io/apiserver, puts one on each answer.
type AuditIDs int

const (
	AuditAll       AuditIDs = iota
	AuditSuccesses          // not those that say 404: another program answers these
	AuditNone               // an old server, or a gateway drops them
	AuditTwice              // an aggregated answer has that of the front, too
)

// audit adds what the server's answers have of Audit-Id.
func (a AuditIDs) audit(resp *http.Response) {
	times := map[AuditIDs]int{AuditAll: 1, AuditTwice: 2}[a]
	if a == AuditSuccesses && resp.StatusCode < http.StatusBadRequest {
		times = 1
	}
	for range times {
		resp.Header.Add("Audit-Id", "5cbe4f0f-4ad5-4ae5-a0be-6bd1c9a2f3b7")
	}
}

// Aggregated returns the forms of Kubernetes 1.37, with which New starts. v2 exists
// since 1.30; v2beta1 was removed between 1.30 and 1.37.
func Aggregated() Forms {
	return Forms{V2: true, Protobuf: true, ETag: true, Vary: true}
}

// V2Beta1Only returns the forms of Kubernetes 1.27 to 1.29.
func V2Beta1Only() Forms {
	return Forms{V2beta1: true, Protobuf: true, ETag: true, Vary: true}
}

// Legacy returns the forms of Kubernetes before 1.26, or with aggregated discovery
// turned off.
func Legacy() Forms {
	return Forms{Protobuf: true}
}

const (
	discoveryGroup = "apidiscovery.k8s.io"
	discoveryKind  = "APIGroupDiscoveryList"
	jsonType       = "application/json"
	protobufType   = "application/vnd.kubernetes.protobuf"
)

// A form is one way to write a document.
type form struct {
	version  string // of apidiscovery.k8s.io; empty: legacy
	protobuf bool
}

// json returns the form of the same document in JSON.
func (f form) json() form { return form{version: f.version} }

func (f form) aggregated() bool { return f.version != "" }

func (f form) mediaType() string {
	if f.protobuf {
		return protobufType
	}
	return jsonType
}

func (f form) contentType() string {
	if !f.aggregated() {
		return f.mediaType()
	}
	return f.mediaType() + ";g=" + discoveryGroup + ";v=" + f.version + ";as=" + discoveryKind
}

// String returns the name of the form in a list of requests.
func (f form) String() string {
	switch {
	case f == form{}:
		return "legacy"
	case !f.aggregated():
		return "legacy+protobuf"
	case f.protobuf:
		return f.version + "+protobuf"
	default:
		return f.version + "+json"
	}
}

// parseForm reads one media type of an Accept or Content-Type header, without its quality.
func parseForm(mediaType string) (f form, ok bool) {
	name, params, err := mime.ParseMediaType(mediaType)
	if err != nil || !slices.Contains([]string{jsonType, protobufType, "*/*"}, name) {
		return form{}, false
	}
	f = form{version: params["v"], protobuf: name == protobufType}
	if f.aggregated() {
		return f, params["g"] == discoveryGroup && params["as"] == discoveryKind
	}
	return f, params["g"] == "" && params["as"] == ""
}

// negotiate returns the first form of an Accept header that the server can send. Only the
// two roots have aggregated forms, and there the server prefers them, whatever place the
// client gives to plain JSON.
func (f Forms) negotiate(accept string, root bool) (best form, ok bool) {
	if accept == "" {
		return form{}, true
	}
	for _, mediaType := range strings.Split(accept, ",") {
		wanted, known := parseForm(mediaType)
		if !known || !f.speaks(wanted) || wanted.aggregated() && !root {
			continue
		}
		if !ok || wanted.aggregated() && !best.aggregated() {
			best, ok = wanted, true
		}
	}
	return best, ok
}

func (f Forms) speaks(wanted form) bool {
	versions := map[string]bool{"": true, "v2": f.V2, "v2beta1": f.V2beta1}
	return versions[wanted.version] && (f.Protobuf || !wanted.protobuf)
}
