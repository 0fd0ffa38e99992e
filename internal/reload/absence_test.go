// SPDX-License-Identifier: Apache-2.0

package reload

import (
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// Lookups of invented names may fail, because nobody may read them, or because an API
// server that starts does not answer yet. However many there are, they are remembered as
// one, and only the first casts doubt on an absence elsewhere.
func TestFailuresOfUnknownNamesAreOne(t *testing.T) {
	var d doubts
	failed := errors.New("403")
	known := snapshot.Read{Part: snapshot.PartVersion, Group: "example.com", Version: "v1"}
	start := time.Now().Add(-100 * time.Second)
	for n := range 100 {
		made := fmt.Sprintf("group%d.example.com", n)
		now := start.Add(time.Duration(n) * time.Second)
		d.note(now, snapshot.Read{Part: snapshot.PartList, Group: made}, false, failed)
		d.note(now, snapshot.Read{Part: snapshot.PartVersion, Group: made, Version: "v1"}, false, failed)
		d.note(now, snapshot.Read{Part: snapshot.PartVersion, Group: known.Group, Version: made}, false, failed)
	}
	kept := 0
	d.failing.Range(func(any, any) bool { kept++; return true })
	if kept != 2 {
		t.Errorf("%d failures are kept, want one of lists and one of versions", kept)
	}
	if d.of(known) {
		t.Error("a known version is doubted, though the server itself did not fail")
	}
	if d.note(time.Now(), known, true, failed); !d.of(known) {
		t.Error("a known version that failed is not doubted")
	}
}

// A server that cannot be reached casts doubt as long as it is so, whatever is read.
func TestEachFailureOfTheServerCastsDoubt(t *testing.T) {
	var d doubts
	refused := &net.OpError{Op: "dial", Err: errors.New("refused")}
	failing := snapshot.Read{Part: snapshot.PartVersion, Group: "example.com", Version: "v1"}
	other := snapshot.Read{Part: snapshot.PartVersion, Group: "other.example.com", Version: "v1"}
	now := time.Now()
	if d.note(now.Add(-2*doubtfulFor), failing, true, refused); d.of(other) {
		t.Error("doubted long after the failure")
	}
	if d.note(now.Add(-doubtfulFor/2), failing, true, refused); !d.of(other) {
		t.Error("not doubted after the second failure")
	}
}
