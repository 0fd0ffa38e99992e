// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// hack/e2e tests all else, on a real API server.
func TestFilter(t *testing.T) {
	all := []schema.GroupVersionKind{
		{Version: "v1", Kind: "Secret"},
		{Group: "example.com", Version: "v1", Kind: "Widget"}, {Group: "example.com", Version: "v1beta1", Kind: "Widget"},
		{Group: "a.example.com", Version: "v1", Kind: "WidgetSet"},
	}
	for _, test := range []struct{ include, exclude, want string }{
		{"", "", "Secret.v1 Widget.v1.example.com Widget.v1beta1.example.com WidgetSet.v1.a.example.com"},
		{"Secret", "", "Secret.v1"},
		{"Widget", "", ""},
		{"Widget.example.com", "", "Widget.v1.example.com Widget.v1beta1.example.com"},
		{"*.v1beta1.*", "", "Widget.v1beta1.example.com"},
		{"Widget*", "*.v1beta1.example.com", "Widget.v1.example.com WidgetSet.v1.a.example.com"},
		{"*.example.com", "WidgetSet.a.example.com", "Widget.v1.example.com Widget.v1beta1.example.com"},
		{"", "Widget.example.com,Secret", "WidgetSet.v1.a.example.com"},
	} {
		var f filter
		for list, p := range map[string]*patterns{test.include: &f.include, test.exclude: &f.exclude} {
			if err := p.Set(list); list != "" && err != nil {
				t.Error(err)
			}
		}
		var got []string
		for _, gvk := range all {
			if f.has(gvk) {
				got = append(got, strings.TrimSuffix(gvk.Kind+"."+gvk.Version+"."+gvk.Group, "."))
			}
		}
		if got := strings.Join(got, " "); got != test.want {
			t.Errorf("include %q, exclude %q: got %q, want %q", test.include, test.exclude, got, test.want)
		}
	}
}
