// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"unicode"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// What a server sends is bounded here, while it is decoded, so that nothing behind it has
// to ask how much there may be. No server that stores its APIs in etcd exceeds these
// bounds: names are DNS subdomains, a thousand groups are many, and groups with ten
// versions are rare.
//
// What exceeds a bound is an error of the version that it is in, and nothing else is lost:
//
//   - A version with a resource whose name, singular name or kind is no name has no table
//     and says why.
//   - A version whose own name is no name, and each version of a group whose name is none,
//     stands in the document under a name that ends with marked. It is never asked for.
//   - A group with too many versions keeps the first of them. The next one stands for the
//     others, and says why.
//
// Only a document with too many groups or elements is an error as a whole.
const (
	maxName     = 253 // bytes of the name of a group, version or resource, and of a kind
	maxVersions = 64  // of a group
	maxGroups   = 1 << 16

	// maxElements bounds the groups, versions and resources of a document together, because
	// a document of permitted size could take much memory when it is decoded. A server with
	// 2,000 groups of two versions with 30 kinds each sends a quarter of that.
	maxElements = 1 << 19

	// maxKeptElements bounds the same with subresources, verbs, short names and categories. Of a document that has
	// more of them no resource list is kept. A server with 1,000 groups of two versions with 30 kinds each sends two
	// thirds of that.
	maxKeptElements = 1 << 20

	maxETag = 256 // bytes; a longer one is not sent back
)

var errElements = fmt.Errorf("the document has more than %d elements", maxElements)

func checkCount(groups int) error {
	if groups > maxGroups {
		return fmt.Errorf("the document has more than %d groups", maxGroups)
	}
	return nil
}

// checkNames returns an error if a name is longer than a name may be, or has a character in it that does
// not belong in a log. Before each name stands what it is of.
func checkNames(names ...string) error {
	for i := 1; i < len(names); i += 2 {
		if shown(names[i]) != names[i] {
			return fmt.Errorf("the name of %s has more than %d bytes, or a character that can't be printed: %s", names[i-1], maxName, shown(names[i]))
		}
	}
	return nil
}

// marked ends a name that stands for one that is no name. No name of an API ends so.
const marked = "…"

// shown returns name if it is one, else as much of it as may be shown.
func shown(name string) string {
	if len(name) <= maxName && printable(name) == name {
		return name
	}
	return printable(name[:min(len(name), maxName/4)]) + marked
}

// printable replaces what could move a cursor, begin a line or hide a text.
func printable(text string) string {
	if !strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return text // as nearly always; each name of a document comes here
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// checkRows checks the resources of a version, without the subresources, which tables do
// not have.
func checkRows(rows []snapshot.Resource) error {
	for _, r := range rows {
		if strings.Contains(r.Name, "/") {
			continue
		}
		if err := checkNames("a resource", r.Name, "a resource in the singular", r.Singular, "a kind", r.Kind); err != nil {
			return err
		}
	}
	return nil
}

// builder makes one group within the bounds.
type builder struct {
	name, preferred string // as the server says
	versions        []snapshot.Version
	table           *snapshot.Table // the last one that addServed has made
}

// full reports whether further versions are dropped.
func (b *builder) full() bool { return len(b.versions) > maxVersions }

// add adds a version as it is in the document. It leaves out versions whose name cannot be
// a part of a path, or that lookups do not take for a version. It drops a version whose
// name has come before, unless it was read and the earlier one was not.
func (b *builder) add(v snapshot.Version) {
	if !segment(v.Name) || v.Name == runtime.APIVersionInternal || b.full() {
		return
	}
	err := checkNames("the group", b.name, "the version", v.Name)
	v.Name = shown(v.Name)
	if i := slices.IndexFunc(b.versions, func(other snapshot.Version) bool { return other.Name == v.Name }); i >= 0 {
		if err == nil && v.Table != nil && b.versions[i].Table == nil {
			b.versions[i] = v
		}
		return
	}
	if len(b.versions) == maxVersions {
		err = fmt.Errorf("the group has more than %d versions: this one and those after it are not read", maxVersions)
	}
	if err != nil {
		v = snapshot.Version{Name: v.Name, Err: versionError(shown(b.name), v.Name, http.StatusOK, err)}
	}
	b.versions = append(b.versions, v)
}

// addServed adds a version of an aggregated document, the first of which is preferred. rows
// has no resource without a response kind, which is only the parent of subresources;
// client-go drops those as well. A version that the server marks as stale gets no table:
// its resources "may be significantly out of date" (k8s.io/api/apidiscovery/v2), and
// client-go leaves it out as well. list is what the table keeps besides, or nil.
func (b *builder) addServed(name, freshness string, rows []snapshot.Resource, list *metav1.APIResourceList) {
	if b.full() {
		return
	}
	if len(b.versions) == 0 {
		b.preferred = name
	}
	v, err := snapshot.Version{Name: name}, checkRows(rows)
	switch {
	case freshness == stale:
		v.Err = versionError(b.name, name, 0, errMarkedStale)
	case err != nil:
		v.Err = versionError(b.name, name, http.StatusOK, err)
	default:
		b.table = snapshot.ReuseTable(b.table, rows)
		v.Table = b.table.WithResourceList(list)
	}
	b.add(v)
}

func (b *builder) group() *snapshot.Group {
	return snapshot.NewGroup(shown(b.name), shown(b.preferred), b.versions)
}

// checkList returns a list of versions, or an error if it has none or exceeds a bound.
func checkList(g *snapshot.Group) (*snapshot.Group, error) {
	if len(g.Versions()) == 0 {
		return nil, errNoVersions
	}
	for i, v := range g.Versions() {
		var failed *Error
		if (i == maxVersions || strings.HasSuffix(v.Name, marked)) && errors.As(v.Err, &failed) {
			return nil, failed.Err
		}
	}
	return g, nil
}

// errMarked returns the error of a version that has no name to read it by, or nil.
func errMarked(gv schema.GroupVersion) error {
	for _, name := range []string{gv.Group, gv.Version} {
		if strings.HasSuffix(name, marked) {
			return versionError(gv.Group, gv.Version, http.StatusOK, fmt.Errorf("%s stands for a name that is none in the document", name))
		}
	}
	return nil
}
