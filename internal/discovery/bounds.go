// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"cmp"
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

// What a server sends is bounded here, while it is decoded, so that no later step has to ask how much there may be. No
// server that stores its APIs in etcd exceeds these bounds: names are DNS subdomains, a thousand groups are many, and
// groups with ten versions are rare.
//
// What exceeds a bound is an error of the version that it is in, and nothing else is lost:
//
//   - A version that has a resource with an invalid name, singular name or kind has no table, and an error that says
//     so.
//   - A version with an invalid name, and each version of a group with one, has a placeholder for that in the document,
//     which ends with placeholderSuffix. It is never asked for.
//   - A group with too many versions keeps the first of them. The next one has an error that says so, and stands for
//     the others.
//
// A name is invalid if it is too long, or has a character that cannot be printed. Only a document with too many groups
// or elements is an error as a whole.
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

func checkGroupCount(groups int) error {
	if groups > maxGroups {
		return fmt.Errorf("the document has more than %d groups", maxGroups)
	}
	return nil
}

// checkName returns an error if a name is longer than a name may be, or has a character in it that does not belong in a
// log. what says what has the name.
func checkName(what, name string) error {
	if displayName(name) == name {
		return nil
	}
	return fmt.Errorf("the name of %s has more than %d bytes, or a character that can't be printed: %s",
		what, maxName, displayName(name))
}

// placeholderSuffix ends what stands for an invalid name. No name of an API ends so.
const placeholderSuffix = "…"

// displayName returns name if it is valid, and otherwise a placeholder with as much of it as may be shown.
func displayName(name string) string {
	if len(name) <= maxName && printable(name) == name {
		return name
	}
	return printable(name[:min(len(name), maxName/4)]) + placeholderSuffix
}

// printable replaces what could move a cursor, begin a line or hide a text.
func printable(text string) string {
	isOther := func(r rune) bool { return r <= ' ' || r > '~' }
	if !strings.ContainsFunc(text, isOther) {
		return text // as nearly always, and each name of a document is checked
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return unicode.ReplacementChar
	}, text)
}

// checkResources checks the names of the resources of a version. Tables have no subresources, so these are not checked.
func checkResources(resources []snapshot.Resource) error {
	for _, r := range resources {
		if strings.Contains(r.Name, "/") {
			continue
		}
		err := cmp.Or(
			checkName("a resource", r.Name),
			checkName("a resource in the singular", r.Singular),
			checkName("a kind", r.Kind),
		)
		if err != nil {
			return err
		}
	}
	return nil
}

// groupBuilder makes one group within the bounds.
type groupBuilder struct {
	name, preferred string // as the server says
	versions        []snapshot.Version
	table           *snapshot.Table // the last one that addServed has made
}

// full reports whether further versions are dropped.
func (b *groupBuilder) full() bool { return len(b.versions) > maxVersions }

// add adds a version as it is in the document. It leaves out versions whose name cannot be a part of a path, or that
// lookups do not take for a version. It drops a version whose name is there already, unless it has a table and the
// earlier one has none.
func (b *groupBuilder) add(v snapshot.Version) {
	if !isPathSegment(v.Name) || v.Name == runtime.APIVersionInternal || b.full() {
		return
	}
	err := cmp.Or(checkName("the group", b.name), checkName("the version", v.Name))
	v.Name = displayName(v.Name)
	sameName := func(other snapshot.Version) bool { return other.Name == v.Name }
	if i := slices.IndexFunc(b.versions, sameName); i >= 0 {
		if err == nil && v.Table != nil && b.versions[i].Table == nil {
			b.versions[i] = v
		}
		return
	}
	if len(b.versions) == maxVersions {
		err = fmt.Errorf("the group has more than %d versions: this one and those after it are not read", maxVersions)
	}
	if err != nil {
		v = snapshot.Version{Name: v.Name, Err: versionError(displayName(b.name), v.Name, http.StatusOK, err)}
	}
	b.versions = append(b.versions, v)
}

// addServed adds a version of an aggregated document, the first of which is preferred. A version that the server marks
// as stale gets no table: its resources "may be significantly out of date" (k8s.io/api/apidiscovery/v2), and client-go
// leaves it out as well. list is what the table keeps besides, or nil.
func (b *groupBuilder) addServed(
	name, freshness string, resources []snapshot.Resource, list *metav1.APIResourceList,
) {
	if b.full() {
		return
	}
	if len(b.versions) == 0 {
		b.preferred = name
	}
	b.add(b.servedVersion(name, freshness, resources, list))
}

func (b *groupBuilder) servedVersion(
	name, freshness string, resources []snapshot.Resource, list *metav1.APIResourceList,
) snapshot.Version {
	if freshness == freshnessStale {
		return snapshot.Version{Name: name, Err: versionError(b.name, name, 0, errMarkedStale)}
	}
	if err := checkResources(resources); err != nil {
		return snapshot.Version{Name: name, Err: versionError(b.name, name, http.StatusOK, err)}
	}
	b.table = snapshot.ReuseTable(b.table, resources)
	return snapshot.Version{Name: name, Table: b.table.WithResourceList(list)}
}

func (b *groupBuilder) group() *snapshot.Group {
	return snapshot.NewGroup(displayName(b.name), displayName(b.preferred), b.versions)
}

// checkVersions returns the group of a list of versions, or an error if it has none or exceeds a bound: versions that
// the list leaves out would count as not served.
func checkVersions(g *snapshot.Group) (*snapshot.Group, error) {
	if len(g.Versions()) == 0 {
		return nil, errNoVersions
	}
	for i, v := range g.Versions() {
		exceedsBound := i == maxVersions || strings.HasSuffix(v.Name, placeholderSuffix)
		var failed *Error
		if exceedsBound && errors.As(v.Err, &failed) {
			return nil, failed.Err
		}
	}
	return g, nil
}

// placeholderError returns the error of a version that has a placeholder for its name, or for that of its group; nil if
// it has none.
func placeholderError(gv schema.GroupVersion) error {
	for _, name := range []string{gv.Group, gv.Version} {
		if strings.HasSuffix(name, placeholderSuffix) {
			err := fmt.Errorf("the document has an invalid name, shown shortened: %s", name)
			return versionError(gv.Group, gv.Version, http.StatusOK, err)
		}
	}
	return nil
}
