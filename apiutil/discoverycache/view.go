// SPDX-License-Identifier: Apache-2.0

package discoverycache

import (
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// view is a snapshot as client-go's discovery describes it. Functions of client-go take it for a discovery client.
// Nothing in it changes, except outdated.
type view struct {
	discovery.DiscoveryInterface // nil: they call only the methods below

	snapshot *snapshot.Snapshot
	groups   *metav1.APIGroupList                            // in the mapper's order, with versions that fail
	lists    map[schema.GroupVersion]*metav1.APIResourceList // with the last ones of versions that fail
	failed   map[schema.GroupVersion]error

	made     time.Time
	outdated atomic.Bool // Fresh has returned false for it
}

var errNoResourceList = errors.New("the resources of the version were not read yet, or cannot be decoded as a whole")

// newView returns the view of a snapshot. failed are the versions that could not be read.
func newView(s *snapshot.Snapshot, failed map[schema.GroupVersion]error) *view {
	v := &view{
		snapshot: s,
		groups:   &metav1.APIGroupList{},
		lists:    map[schema.GroupVersion]*metav1.APIResourceList{},
		failed:   map[schema.GroupVersion]error{},
		made:     time.Now(),
	}
	for _, known := range s.Groups() {
		group := metav1.APIGroup{Name: known.Name()}
		for _, version := range known.Versions() {
			gv := schema.GroupVersion{Group: known.Name(), Version: version.Name}
			list, err := version.Table.ResourceList(), failed[gv]
			if list != nil {
				v.lists[gv] = list
			} else if err == nil {
				err = errNoResourceList
			}
			if err != nil {
				v.failed[gv] = err
			}
			entry := metav1.GroupVersionForDiscovery{GroupVersion: gv.String(), Version: version.Name}
			group.Versions = append(group.Versions, entry)
			if version.Name == known.Preferred() {
				group.PreferredVersion = entry
			}
		}
		v.groups.Groups = append(v.groups.Groups, group)
	}
	return v
}

// unconfirmed returns v with an error beside the list of each version: err beside the first, and one that wraps it
// beside the others. client-go joins the texts of all, of which there may be a thousand.
func (v *view) unconfirmed(err error) *view {
	next := &view{snapshot: v.snapshot, groups: v.groups, lists: v.lists, failed: maps.Clone(v.failed), made: v.made}
	beside := err
	for _, group := range v.groups.Groups {
		for _, version := range group.Versions {
			gv := schema.GroupVersion{Group: group.Name, Version: version.Version}
			if v.lists[gv] != nil {
				next.failed[gv] = beside
				beside = notConfirmed{err}
			}
		}
	}
	return next
}

// notConfirmed is an error of an outage with a short text.
type notConfirmed struct{ cause error }

func (notConfirmed) Error() string   { return "not confirmed" }
func (e notConfirmed) Unwrap() error { return e.cause }

// sameAs reports whether both views have the same groups and lists. A list that a read has found again is the same one.
func (v *view) sameAs(other *view) bool {
	sameGroup := func(a, b metav1.APIGroup) bool {
		return a.Name == b.Name && a.PreferredVersion == b.PreferredVersion && slices.Equal(a.Versions, b.Versions)
	}
	return slices.EqualFunc(v.groups.Groups, other.groups.Groups, sameGroup) && maps.Equal(v.lists, other.lists)
}

// resourceList returns what is known of a version: its list, an error, or both. isKnown reports whether anything is.
func (v *view) resourceList(gv schema.GroupVersion) (list *metav1.APIResourceList, isKnown bool, err error) {
	list, err = v.lists[gv], v.failed[gv]
	return list, list != nil || err != nil, err
}

// ServerGroups returns the groups.
func (v *view) ServerGroups() (*metav1.APIGroupList, error) { return v.groups, nil }

// ServerResourcesForGroupVersion returns the list of a version, which has a place among the groups. Functions of
// client-go take a list beside an error.
func (v *view) ServerResourcesForGroupVersion(groupVersion string) (*metav1.APIResourceList, error) {
	gv, err := schema.ParseGroupVersion(groupVersion)
	if err != nil {
		return nil, err
	}
	return v.lists[gv], v.failed[gv]
}

// groupsAndResources returns the groups and the lists in the mapper's order, and the error of the versions that fail.
func (v *view) groupsAndResources() ([]*metav1.APIGroup, []*metav1.APIResourceList, error) {
	groups := make([]*metav1.APIGroup, 0, len(v.groups.Groups))
	lists := make([]*metav1.APIResourceList, 0, len(v.lists))
	for i := range v.groups.Groups {
		group := &v.groups.Groups[i]
		groups = append(groups, group)
		for _, version := range group.Versions {
			if list := v.lists[schema.GroupVersion{Group: group.Name, Version: version.Version}]; list != nil {
				lists = append(lists, list)
			}
		}
	}
	if len(v.failed) == 0 {
		return groups, lists, nil
	}
	return groups, lists, &discovery.ErrGroupDiscoveryFailed{Groups: maps.Clone(v.failed)}
}
