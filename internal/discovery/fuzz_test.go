// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/share"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// body returns what a server answers.
func body(t testing.TB, server *fakeapi.Server, path, accept string) []byte {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, "http://fake.invalid"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", accept)
	resp, err := server.Client().Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// decodeAll decodes data as every kind of document, and uses the result as a mapper
// would.
func decodeAll(data []byte) {
	core, coreErr := decodeBulk(data, corePath)
	named, namedErr := decodeBulk(data, namedPath)
	if coreErr == nil && namedErr == nil {
		use(core, named)
	} else if namedErr == nil {
		use(&share.Document{}, named)
	}
	gv := schema.GroupVersion{Group: "g0001.example.com", Version: "v2"}
	if g, err := decodeGroup(data, gv.Group); err == nil {
		_ = g.Versions()
	}
	_, _ = decodeCore(data, "")
	if resources, err := decodeResources(data, gv); err == nil {
		snapshot.NewTable(resources)
	}
}

func use(core, named *share.Document) {
	bulk := newBulk(&half{Document: *core}, &half{Document: *named}, nil)
	s := new(snapshot.Snapshot).WithDocument(bulk.list, 1)
	s = s.Reset(2).WithDocument(bulk.list, 3)
	snapshot.Diff(new(snapshot.Snapshot), s)
	for range 20 { // enough for the index of names
		_, _, _ = s.KindFor(schema.GroupVersionResource{Resource: "kind0001as"})
		_, _, _ = s.KindFor(schema.GroupVersionResource{Group: "g", Resource: "klists"})
	}
}

// No document makes a decoder panic, or hang. Run it with -fuzz to look further
// than at the seeds.
func FuzzDecode(f *testing.F) {
	server := fakeapi.New(oddities()...)
	server.SetForms(fakeapi.Forms{V2: true, V2beta1: true, Protobuf: true})
	for _, path := range []string{"/api", "/apis", "/apis/g0001.example.com", "/apis/g0001.example.com/v2"} {
		for _, accept := range append(strings.Split(acceptBulk, ","), "application/vnd.kubernetes.protobuf") {
			data := body(f, server, path, accept)
			f.Add(data)
			f.Add(data[:len(data)/2])
		}
	}
	for _, data := range []string{
		"", " ", "k8s\x00", "k8s\x00\x0a", "null", "[]", `""`, "0", "{", `{"kind":"APIGroupList"}`, `{"kind":"APIVersions","versions":[1]}`,
		`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[null,{},[],""]}`,
		`{"kind":"APIGroup","name":"g0001.example.com","versions":[null,{},1]}`,
		`{"kind":"APIResourceList","groupVersion":"g0001.example.com/v2","resources":[null,{},{"kind":"List"},{"name":"/"}]}`,
	} {
		f.Add([]byte(data))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 1<<20 {
			t.Skip("too much to do for a fuzzer")
		}
		decodeAll(data)
	})
}

// Every document of a real form, cut off and damaged at each of its bytes.
func TestDamagedDocuments(t *testing.T) {
	const trailer = 4 // in protobuf two empty fields follow the document, in JSON a newline does
	server := fakeapi.New(fakeapi.Typical(1, 2, 1)[1:]...)
	for _, accept := range strings.Split(acceptBulk, ",")[:2] {
		data := body(t, server, "/apis", accept)
		for i := range data {
			if _, err := decodeBulk(data[:i], namedPath); err == nil && i < len(data)-trailer {
				t.Errorf("%s: cut off after %d of %d bytes, and taken for whole", accept, i, len(data))
			}
			damaged := append([]byte(nil), data...)
			for _, b := range []byte{0xff, damaged[i] ^ 8} {
				damaged[i] = b
				decodeAll(damaged)
			}
		}
	}
}

// message is a protobuf message of fields that are all of bytes.
type message []byte

func (m message) with(field protowire.Number, value string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), value)
}

func aggregatedProtobuf(list message) []byte {
	typeMeta := message{}.with(typeAPIVersion, "apidiscovery.k8s.io/v2").with(typeKind, aggregatedKind)
	return append([]byte(protobufMagic), message{}.with(unknownTypeMeta, string(typeMeta)).with(unknownRaw, string(list))...)
}

// Documents that are small on the wire and meant to be large, or slow, in memory.
func TestHostileDocuments(t *testing.T) {
	aggregated := func(items string) []byte {
		return []byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + items + `]}`)
	}
	repeat := func(n int, text func(i int) string) string {
		var b strings.Builder
		for i := range n {
			if i > 0 {
				b.WriteByte(',')
			}
			b.WriteString(text(i))
		}
		return b.String()
	}
	versions := repeat(5_000, func(i int) string { return fmt.Sprintf(`{"version":"v%d"}`, i) })
	groups := message{}
	for i := range maxGroups + 1 {
		groups = groups.with(listItems, string(message{}.with(groupMeta, string(message{}.with(metaName, fmt.Sprint(i))))))
	}
	for name, test := range map[string]struct {
		body []byte
		want string // of the error; empty: it is taken
	}{
		"many versions":        {aggregated(`{"metadata":{"name":"g"},"versions":[` + versions + `]}`), ""},
		"many versions, stale": {aggregated(`{"metadata":{"name":"g"},"versions":[` + strings.ReplaceAll(versions, `"}`, `","freshness":"Stale"}`) + `]}`), ""},
		"many versions listed": {[]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"g","versions":[` + versions + `]}]}`), ""},
		"one group many times": {aggregated(repeat(5_000, func(i int) string {
			return fmt.Sprintf(`{"metadata":{"name":"g"},"versions":[{"version":"v%d"}]}`, i)
		})), ""},
		"a long name":         {aggregated(`{"metadata":{"name":"` + strings.Repeat("x", 1<<20) + `"}},` + repeat(20, func(i int) string { return fmt.Sprintf(`{"metadata":{"name":"g%d"}}`, i) })), ""},
		"a long name, listed": {[]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"` + strings.Repeat("x", 1<<20) + `"}]}`), ""},
		"names in names":      {aggregated(repeat(253, func(i int) string { return fmt.Sprintf(`{"metadata":{"name":"%s"}}`, strings.Repeat("x", i+1)) })), ""},
		"many elements":       {aggregated(strings.Repeat("{},", maxElements+1) + "{}"), "elements"},
		"many groups":         {aggregatedProtobuf(groups), "more than 65536 groups"},
		"many groups in JSON": {aggregated(strings.Repeat("{},", maxGroups) + "{}"), "more than 65536 groups"},
		"many groups listed":  {[]byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[` + strings.Repeat("{},", maxGroups) + `{}]}`), "more than 65536 groups"},
		"deep nesting":        {aggregated(strings.Repeat("[", 1<<20)), "not a discovery document"},
		"resources of one name": {aggregated(`{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[` + repeat(5_000, func(i int) string {
			return fmt.Sprintf(`{"resource":"r%d","singularResource":"x","responseKind":{"kind":"K%dList"}}`, i, i)
		}) + `]}]}`), ""},
	} {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			err := decodeAndUse(test.body)
			runtime.ReadMemStats(&after)
			if text := fmt.Sprint(err); test.want == "" && err != nil || !strings.Contains(text, test.want) {
				t.Errorf("%.200s, want %q", text, test.want)
			}
			if took := time.Since(start); took > 20*time.Second {
				t.Errorf("took %v", took)
			}
			if most := uint64(256<<20 + 64*len(test.body)); after.TotalAlloc-before.TotalAlloc > most {
				t.Errorf("%d bytes of document took %d bytes of memory", len(test.body), after.TotalAlloc-before.TotalAlloc)
			}
		})
	}
}

func decodeAndUse(body []byte) error {
	doc, err := decodeBulk(body, namedPath)
	if err != nil {
		return err
	}
	bulk := newBulk(&half{}, &half{Document: *doc}, nil)
	new(snapshot.Snapshot).WithDocument(bulk.list, 1).Reset(2).WithDocument(bulk.list, 3)
	return nil
}
