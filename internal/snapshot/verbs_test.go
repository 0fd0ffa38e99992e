// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"reflect"
	"slices"
	"testing"
)

// Verbs are a set: order and repetition make no difference, and what is no verb of an API
// server is left out.
func TestVerbsAreASet(t *testing.T) {
	set := func(names ...string) (v Verbs) {
		for _, name := range names {
			v = v.With(name)
		}
		return v
	}
	if a, b := set("watch", "get", "list"), set("list", "dance", "get", "watch", "", "get"); a != b {
		t.Errorf("%q differs from %q", a.Names(), b.Names())
	}
	if set("get") == set("list") || set("get") == 0 {
		t.Error("other verbs are no difference")
	}
	all := []string{"create", "delete", "deletecollection", "get", "list", "patch", "proxy", "update", "watch"}
	v := set(all...)
	if got := v.Names(); !slices.Equal(got, all) {
		t.Errorf("got %q, want %q", got, all)
	}
	v.Names()[0] = "mine"
	if got := v.Names(); !slices.Equal(got, all) {
		t.Errorf("a caller has changed the verbs to %q", got)
	}
	if got := Verbs(0).Names(); len(got) != 0 {
		t.Errorf("no verbs are %q", got)
	}
}

// A mapper keeps a Resource for each kind, so verbs may take no more than its padding.
func TestVerbsTakeNoMemory(t *testing.T) {
	type without struct {
		Name, Singular, Kind string
		Namespaced           bool
	}
	if with, without := reflect.TypeFor[Resource]().Size(), reflect.TypeFor[without]().Size(); with != without {
		t.Errorf("a resource takes %d bytes, and %d without verbs", with, without)
	}
}
