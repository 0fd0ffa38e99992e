// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
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
		use(&half{}, named)
	}
	gv := schema.GroupVersion{Group: "g0001.example.com", Version: "v2"}
	_, _ = decodeGroup(data, schema.GroupVersion{Group: gv.Group})
	_, _ = decodeGroup(data, schema.GroupVersion{})
	_, _ = decodeTable(data, gv)
}

func use(core, named *half) {
	list := documentOf(core, named, nil)
	s := new(snapshot.Snapshot).WithDocument(list, 1)
	s = s.Reset(2).WithDocument(list, 3)
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
func TestDamagedDocumentIsNeverTakenForWhole(t *testing.T) {
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
