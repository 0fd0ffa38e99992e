// SPDX-License-Identifier: Apache-2.0

package share

import (
	"errors"
	"testing"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

func TestEqualBytesHaveEqualKeys(t *testing.T) {
	a := KeyOf("json", []byte("group"))
	if a != KeyOf("json", []byte("group")) {
		t.Error("equal bytes have different keys")
	}
	for name, other := range map[string]Key{
		"other bytes":         KeyOf("json", []byte("groups")),
		"another form":        KeyOf("protobuf", []byte("group")),
		"the boundary shifts": KeyOf("jsongr", []byte("oup")),
	} {
		if a == other {
			t.Errorf("%s: the same key", name)
		}
	}
}

func TestFailedGroupsAreNotKept(t *testing.T) {
	before := kept()
	reason := errors.New("no group")
	if _, err := Group(KeyOf("", []byte("bad")), func() (*snapshot.Group, error) { return nil, reason }); !errors.Is(err, reason) {
		t.Error(err)
	}
	if got := kept(); got != before {
		t.Errorf("%v kept, not %v", got, before)
	}
}
