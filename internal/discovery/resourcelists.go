// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"encoding/json"

	apidiscovery "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgo "k8s.io/client-go/discovery"
)

// A discovery cache returns what the server sends: short names, categories and subresources included. Lookups need
// none of that, and it is most of a document. So it is kept only for a mapper that has a discovery cache, beside the
// table that lookups use: the cache is then as fresh as they are, and costs no request of its own.

// KeepResourceLists makes all reads that begin later keep what the server sends of each version, see
// snapshot.Table.ResourceList. It reports whether they have done so before.
func (c *Client) KeepResourceLists() (before bool) { return c.keepResourceLists.Swap(true) }

// resourceListsOf returns the resource list of each version in a group of the aggregated document, in the order in
// which the document has them; nil if the group cannot be read as a whole. It converts them as client-go does.
func resourceListsOf(data []byte) []*metav1.APIResourceList {
	whole := apidiscovery.APIGroupDiscovery{}
	if json.Unmarshal(data, &whole) != nil {
		return nil
	}
	lists := make([]*metav1.APIResourceList, len(whole.Versions))
	for i, v := range whole.Versions {
		one := apidiscovery.APIGroupDiscovery{
			ObjectMeta: whole.ObjectMeta,
			Versions:   []apidiscovery.APIVersionDiscovery{v},
		}
		_, converted, _ := clientgo.SplitGroupsAndResources(apidiscovery.APIGroupDiscoveryList{
			Items: []apidiscovery.APIGroupDiscovery{one},
		})
		lists[i] = converted[schema.GroupVersion{Group: whole.Name, Version: v.Version}]
	}
	return lists
}

// resourceListOf returns the resource list that a version's own path has answered; nil if it cannot be read as a whole.
// The path says of which version it is, whatever the list says.
func resourceListOf(body []byte, gv schema.GroupVersion) *metav1.APIResourceList {
	list := &metav1.APIResourceList{}
	if json.Unmarshal(body, list) != nil {
		return nil
	}
	list.GroupVersion = gv.String()
	return list
}
