// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A requestRow is a kind of lookup whose requests are counted.
type requestRow struct {
	name string
	cold bool // the mapper is new
	ask  func(m meta.RESTMapper, gk schema.GroupKind) error
}

func found(_ *meta.RESTMapping, err error) error { return err }

func wantNoMatch(err error) error {
	if meta.IsNoMatchError(err) {
		return nil
	}
	return errFound
}

// absent is a kind that is not served, in a group that is.
func absent(gk schema.GroupKind) schema.GroupKind {
	return schema.GroupKind{Group: gk.Group, Kind: "Absent"}
}

var requestRows = []requestRow{
	{"first", true, func(m meta.RESTMapper, gk schema.GroupKind) error { return found(m.RESTMapping(gk, "v1")) }},
	{"hit", false, func(m meta.RESTMapper, gk schema.GroupKind) error { return found(m.RESTMapping(gk, "v1")) }},
	{"miss+version", false, func(m meta.RESTMapper, gk schema.GroupKind) error {
		return wantNoMatch(found(m.RESTMapping(absent(gk), "v1")))
	}},
	{"miss-unknown-group", false, func(m meta.RESTMapper, _ schema.GroupKind) error {
		return wantNoMatch(found(m.RESTMapping(absentGroup)))
	}},
	{"miss-known-group", false, func(m meta.RESTMapper, gk schema.GroupKind) error {
		return wantNoMatch(found(m.RESTMapping(absent(gk))))
	}},
	{"miss-no-group", false, func(m meta.RESTMapper, _ schema.GroupKind) error {
		_, err := m.KindFor(schema.GroupVersionResource{Resource: "absents"})
		return wantNoMatch(err)
	}},
}

// BenchmarkOnceRequests counts the requests of one lookup, on a server with
// aggregated discovery and on one without. Every group has two versions.
// hack/test.sh -measure runs it, not hack/bench.sh.
func BenchmarkOnceRequests(b *testing.B) {
	for _, server := range []struct {
		name  string
		forms fakeapi.Forms
	}{{"aggregated", fakeapi.Aggregated()}, {"legacy", fakeapi.Legacy()}} {
		for _, row := range requestRows {
			for _, f := range flavours[:2] {
				b.Run("server="+server.name+"/row="+row.name+"/mapper="+f.name, func(b *testing.B) {
					countRequests(b, f, row, server.forms)
				})
			}
		}
	}
}

func countRequests(b *testing.B, f flavour, row requestRow, forms fakeapi.Forms) {
	for b.Loop() {
		e := newEndpoint(uniqueGroupsOf(10))
		e.server.SetForms(forms)
		mapper := f.newMapper(b, e)
		if !row.cold {
			mustFind(b, mapper, e.kind) // without a version, so that all of them are read
		}
		e.traffic()
		if err := row.ask(mapper, e.kind); err != nil {
			b.Fatal(err)
		}
		requests, _ := e.traffic()
		b.ReportMetric(float64(requests), "requests/op")
	}
	b.ReportMetric(0, "ns/op")
}
