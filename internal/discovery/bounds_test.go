// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
	"github.com/freshmapper/freshmapper/internal/snapshot"
)

// allocated returns how many bytes f takes from the heap, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// message is a protobuf message of fields that are all of bytes.
type message []byte

func (m message) with(field protowire.Number, value string) message {
	return protowire.AppendString(protowire.AppendTag(m, field, protowire.BytesType), value)
}

func aggregatedProtobuf(list message) []byte {
	typeMeta := message{}.with(typeAPIVersion, "apidiscovery.k8s.io/v2").with(typeKind, aggregatedKind)
	return append(
		[]byte(protobufMagic), message{}.with(unknownTypeMeta, string(typeMeta)).with(unknownRaw, string(list))...,
	)
}

func aggregatedJSON(items ...string) []byte {
	return []byte(
		`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + strings.Join(items, ",") + `]}`,
	)
}

// repeat joins n texts as the elements of a list.
func repeat(n int, text func(i int) string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = text(i)
	}
	return strings.Join(parts, ",")
}

// A document that says too much is given up before it has taken the memory that
// it asks for, whichever part of it says too much.
func TestTooMuchIsNotDecoded(t *testing.T) {
	const size = 4 << 20
	kind := string(message{}.with(resourceKind, string(message{}.with(kindKind, "K"))))
	version := func(resources int) string {
		v := message{}.with(versionName, "v1")
		return string(append(v, bytes.Repeat(message{}.with(versionResources, kind), resources)...))
	}
	group := func(i int, versions ...string) string {
		g := message{}.with(groupMeta, string(message{}.with(metaName, fmt.Sprintf("g%d", i))))
		for _, v := range versions {
			g = g.with(groupVersions, v)
		}
		return string(g)
	}
	spread, groups := message{}, message{}
	for i := range 100 {
		spread = spread.with(listItems, group(i, version(maxElements/80)))
	}
	for i := range maxGroups + 1 {
		groups = groups.with(listItems, group(i))
	}
	spreadJSON := repeat(100, func(i int) string {
		return fmt.Sprintf(
			`{"metadata":{"name":"g%d"},"versions":[{"resources":[%s{}]}]}`, i,
			strings.Repeat(`{"responseKind":{"kind":"K"}},`, maxElements/80),
		)
	})
	for name, test := range map[string]struct {
		body []byte
		want string
		most uint64
	}{
		"versions of nothing": {
			aggregatedProtobuf(message{}.with(listItems, strings.Repeat("\x12\x00", size/2))), "elements", 4 << 20,
		},
		"versions of nothing in JSON": {
			aggregatedJSON(`{"versions":[` + strings.Repeat(`{},`, maxElements+1) + `{}]}`), "elements", 1 << 20,
		},
		"resources of one version": {
			aggregatedProtobuf(message{}.with(listItems, group(0, version(maxElements)))), "elements", 256 << 20,
		},
		"resources of many groups": {aggregatedProtobuf(spread), "elements", 1 << 30}, // tables and all
		"the same in JSON":         {aggregatedJSON(spreadJSON), "elements", 1 << 20},
		"quotes":                   {aggregatedJSON(`{"a":"\\\",[{` + strings.Repeat(`,`, maxElements) + `"},` + strings.Repeat(`{},`, maxElements) + `{}`), "elements", 1 << 20},
		"groups":                   {aggregatedProtobuf(groups), "more than 65536 groups", 1 << 30},
		"groups of nothing": {
			aggregatedProtobuf(bytes.Repeat(message{}.with(listItems, ""), size/2)), "more than 65536 groups", 16 << 20,
		},
		"groups in JSON": {
			aggregatedJSON(strings.Repeat("{},", maxGroups) + "{}"), "more than 65536 groups", 1 << 30,
		},
		"groups of a list": {
			[]byte(`{"kind":"APIGroupList","groups":[` + strings.Repeat("{},", maxGroups) + `{}]}`),
			"more than 65536 groups", 1 << 30,
		},
	} {
		for _, keepLists := range []bool{false, true} {
			if keepLists && bytes.HasPrefix(test.body, []byte(protobufMagic)) {
				continue // which has no resource lists
			}
			var err error
			if took := allocated(func() { _, err = decodeDocument(test.body, namedPath, keepLists) }); took > test.most {
				t.Errorf("%s: a document of %d bytes has taken %d; want %d at most", name, len(test.body), took, test.most)
			}
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, resource lists are kept: %t: %v; want an error with %q", name, keepLists, err, test.want)
			}
		}
	}
	status := []byte(`{"kind":"Status","message":"why","details":{"causes":[{}` + strings.Repeat(",{}", size/3) + `]}}`)
	var parsed briefStatus
	if took := allocated(func() { parsed, _ = parseStatus(status) }); parsed.Message != "why" || took > 1<<20 {
		t.Errorf("a Status of %d bytes has taken %d, want 1 MiB at most; its message is %q",
			len(status), took, parsed.Message)
	}
}

// Of a group with too many versions the first are read. The next one has an error, which stands for all others.
func TestTooManyVersions(t *testing.T) {
	var versions []string
	for n := range maxVersions + 3 {
		versions = append(versions, fmt.Sprintf(
			`{"version":"v%d","resources":[{"resource":"rs","responseKind":{"kind":"R"}}]}`, n+1))
	}
	read, err := decodeDocument(
		aggregatedJSON(`{"metadata":{"name":"g"},"versions":[`+strings.Join(versions, ",")+`]}`), namedPath, false,
	)
	if err != nil {
		t.Fatal(err)
	}
	got := read.groups[0].Versions()
	if len(got) != maxVersions+1 {
		t.Fatalf("%d versions, want %d and one more", len(got), maxVersions)
	}
	for i, v := range got {
		isLast := i == maxVersions
		if (v.Err != nil) != isLast || isLast && !strings.Contains(v.Err.Error(), "more than 64 versions") {
			t.Errorf("version %d of %d: %v; want an error of the last one alone", i+1, len(got), v.Err)
		}
	}
}

// A version with a name that cannot be a part of a path, or that lookups do not take for a version, is left out.
func TestVersionsThatAreNoneAreLeftOut(t *testing.T) {
	for _, name := range []string{"", "__internal", "a/b", "..", "."} {
		for form, versions := range map[string]string{
			"aggregated": `{"metadata":{"name":"g"},"versions":[{"version":"` + name + `"},{"version":"v1"}]}`,
			"legacy":     `{"name":"g","versions":[{"version":"` + name + `"},{"version":"v1"}]}`,
		} {
			body := aggregatedJSON(versions)
			if form == "legacy" {
				body = []byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[` + versions + `]}`)
			}
			read, err := decodeDocument(body, namedPath, false)
			if err != nil {
				t.Errorf("%s, %q: %v", form, name, err)
				continue
			}
			if got := read.groups[0].Versions(); len(got) != 1 || got[0].Name != "v1" {
				t.Errorf("%s, %q beside v1: %v, want v1 alone", form, name, got)
			}
		}
	}
}

// Only commas of lists are counted, down to a depth. A body that is no JSON may have any count.
func TestElementsAreCounted(t *testing.T) {
	deep := strings.Repeat("[", 100) + "1,2,3" + strings.Repeat("]", 100)
	for body, want := range map[string]int{
		`[1,2,3]`:                       2,
		`{"a":1,"b":2,"c":3}`:           0,
		`{"a":[1,2],"b":{"c":[3,4]}}`:   2,
		`[{"a":1,"b":2},{"a":3}]`:       1,
		`[[1,2],{"a":1,"b":2}]`:         2,
		`[[1,2],[3,4]]`:                 3,
		`[[[1,2],3],4]`:                 3,
		`[[[[1,2],3],4],5]`:             3, // the innermost list is the fourth
		`[{},[[[[[1,2],3]]]],4]`:        2,
		"[" + deep + "," + deep + ",1]": 2,
		`["a,b","c,d"]`:                 1,
		`["\"",1]`:                      1,
		`["\\",1]`:                      1,
		`["\\\"",1]`:                    1,
		`["a,b,c`:                       0,
		`["a\`:                          0,
	} {
		if got := countElements([]byte(body), 3); got != want {
			t.Errorf("%.60s has %d commas; want %d", body, got, want)
		}
	}
	for _, notJSON := range []string{`]`, `]]],[1,2]`, `}}},`, `"`, `"\`, `[`, strings.Repeat("{[", 100) + ","} {
		countElements([]byte(notJSON), keptDepth) // does not panic
	}
}

// Lists in what nobody decodes have any length, and any depth.
func TestDeepListsAreSkipped(t *testing.T) {
	deep := strings.Repeat("[", 100) + "0" + strings.Repeat(",0", maxKeptElements+1) + strings.Repeat("]", 100)
	document := aggregatedJSON(`{"metadata":{"name":"g","x":` + deep + `},"versions":[{"version":"v1","resources":[` +
		`{"resource":"rs","responseKind":{"kind":"R"}}]}]}`)
	for _, keepLists := range []bool{false, true} {
		found, err := decodeDocument(document, namedPath, keepLists)
		if err != nil {
			t.Errorf("resource lists are kept: %t: %v", keepLists, err)
			continue
		}
		table := found.groups[0].Versions()[0].Table
		if table == nil || (table.ResourceList() != nil) != keepLists {
			t.Errorf("the table is %v; want one, with a resource list: %t", table, keepLists)
		}
	}
}

// A group that cannot be decoded is an error of the document: a document without it would say that it is not served.
func TestMalformedGroupIsAnErrorOfTheDocument(t *testing.T) {
	const valid = `{"metadata":{"name":"g"},"versions":[{"version":"v1"}]}`
	for _, group := range []string{
		`[]`, `7`, `{"metadata":{"name":7}}`, `{"metadata":{"name":"h"},"versions":[{"version":7}]}`,
		`{"metadata":{"name":"h"},"versions":[{"version":"v1","resources":[{"responseKind":7}]}]}`,
	} {
		for _, keepLists := range []bool{false, true} {
			_, err := decodeDocument(aggregatedJSON(valid, group, valid), namedPath, keepLists)
			if err == nil || !strings.Contains(err.Error(), "a group of the aggregated document is malformed") {
				t.Errorf("a group %s, resource lists are kept: %t: %v; want an error of the group", group, keepLists, err)
			}
		}
	}
}

// An aggregated document in protobuf without content is no document: an empty list has its metadata. One with that is
// a server without groups.
func TestEmptyProtobufIsNoDocument(t *testing.T) {
	const listMeta = 1
	if read, err := decodeDocument(aggregatedProtobuf(message{}), namedPath, false); !errors.Is(err, errWire) {
		t.Errorf("no list: %v, %v; want %v", read, err, errWire)
	}
	read, err := decodeDocument(aggregatedProtobuf(message{}.with(listMeta, "")), namedPath, false)
	if err != nil || len(read.groups) > 0 {
		t.Errorf("an empty list: %v, %v; want no groups", read, err)
	}
}

// A version that comes twice in a group counts once, with the first table that it has.
func TestVersionThatComesTwice(t *testing.T) {
	version := func(kind string) string {
		return `{"version":"v1","resources":[{"resource":"rs","responseKind":{"kind":"` + kind + `"}}]}`
	}
	const (
		stale   = `{"version":"v1","freshness":"Stale","resources":[{"resource":"rs","responseKind":{"kind":"S"}}]}`
		invalid = `{"version":"v1","resources":[{"resource":"\n","responseKind":{"kind":"I"}}]}`

		invalidName = `{"version":"v\n","resources":[{"resource":"rs","responseKind":{"kind":"N"}}]}`
	)
	for name, test := range map[string]struct {
		versions []string
		want     string // the kind; "": there is no table
	}{
		"twice with a table":        {[]string{version("A"), version("B")}, "A"},
		"stale first":               {[]string{stale, version("A")}, "A"},
		"stale last":                {[]string{version("A"), stale}, "A"},
		"with an invalid one first": {[]string{invalid, version("A"), version("B")}, "A"},
		"stale twice":               {[]string{stale, stale}, ""},
		"an invalid name twice":     {[]string{invalidName, invalidName}, ""},
	} {
		read, err := decodeDocument(
			aggregatedJSON(`{"metadata":{"name":"g"},"versions":[`+strings.Join(test.versions, ",")+`]}`), namedPath, false,
		)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		versions := read.groups[0].Versions()
		if len(versions) != 1 || (versions[0].Table != nil) != (versions[0].Err == nil) {
			t.Errorf("%s: %v; want one version, with a table or an error", name, versions)
			continue
		}
		var kinds []string
		document := snapshot.NewDocument(read.groups, true)
		for _, change := range snapshot.Diff(new(snapshot.Snapshot), new(snapshot.Snapshot).WithDocument(document, 1)) {
			kinds = append(kinds, change.Mapping.GroupVersionKind.Kind)
		}
		if got := strings.Join(kinds, " "); got != test.want {
			t.Errorf("%s: kinds %q; want %q", name, got, test.want)
		}
	}
}

// A large server is no hostile one: this one has 1,000 groups of two versions with
// 30 kinds each.
func TestLargeServersAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server, via := newServer(fakeapi.Typical(1000, 2, 30)...)
	for _, forms := range []fakeapi.Forms{fakeapi.Aggregated(), {V2: true}} {
		server.SetForms(forms)
		c := newClient(t, via)
		c.options.MaxResponseBytes = 64 << 20
		doc, err := c.Document(context.Background())
		if err != nil || len(doc.Groups()) != 1001 || len(doc.Groups()[1000].Versions()) != 2 {
			t.Errorf("1,000 groups of two versions, %s: %v", server.Requests()[0], err)
		}
	}
}

// A text of any length costs little, and where it is cut no part of a secret remains.
func TestLongTextsCostLittle(t *testing.T) {
	for _, size := range []int{10, 999, 5000, maxRedactable + 1} {
		secret := strings.Repeat("x-", size/2) + "y"
		for _, length := range []int{maxErrorText, maxRedactable, 16 << 20} {
			text := "said: " + strings.Repeat("Bearer "+secret, length/size+1)
			c := &Client{secrets: []string{secret}}
			var shown string
			if took := allocated(func() { shown = c.redact(text, nil) }); took > 1<<20 {
				t.Errorf("to show a text of %d bytes has taken %d; want 1 MiB at most", len(text), took)
			}
			if strings.Contains(shown, "x-") || shown == "" || len(shown) > maxErrorText {
				t.Errorf("a secret of %d bytes in a text of %d is shown as %q; want none of the secret, and 1 to %d bytes",
					size, len(text), shown, maxErrorText)
			}
		}
	}
}

// Verbs that are none cost no kind and little memory, wherever they stand.
func TestMalformedVerbsCostNothing(t *testing.T) {
	const most = maxElements - 1
	for verbs, want := range map[string]string{
		`null`:                      "",
		`{}`:                        "",
		`7`:                         "",
		`true`:                      "",
		`""`:                        "",
		`[1,"get",null,{},"watch"]`: "get watch",
		`["\"","GET"," get"]`:       "",
		`[` + strings.Repeat(`"",`, most) + `"get"]`: "get", `["get","` + strings.Repeat("x", most) + `"]`: "get",
	} {
		aggregated := aggregatedJSON(`{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[{"resource":"rs","responseKind":{"kind":"R"},"verbs":` + verbs + `}]}]}`)
		list := []byte(
			`{"kind":"APIResourceList","groupVersion":"g/v1","resources":[{"name":"rs","kind":"R","verbs":` + verbs + `}]}`,
		)
		var read [2]*snapshot.Group
		took := allocated(func() {
			if doc, err := decodeDocument(aggregated, namedPath, false); err == nil {
				read[0] = doc.groups[0]
			}
			if table, err := decodeTable(list, schema.GroupVersion{Group: "g", Version: "v1"}, false); err == nil {
				read[1] = snapshot.NewGroup("g", "v1", []snapshot.Version{{Name: "v1", Table: table}})
			}
		})
		what := verbs[:min(len(verbs), 40)]
		if size := uint64(len(aggregated) + len(list)); took > 4*size+64<<10 {
			t.Errorf("verbs %s have taken %d bytes for %d; want four times as many and 64 KiB at most", what, took, size)
		}
		for i, from := range []string{"the document", "a list"} {
			if read[i] == nil {
				t.Errorf("%s with verbs %s is not read", from, what)
				continue
			}
			diff := snapshot.Diff(
				new(snapshot.Snapshot),
				new(snapshot.Snapshot).WithDocument(snapshot.NewDocument([]*snapshot.Group{read[i]}, true), 1),
			)
			if len(diff) != 1 || strings.Join(diff[0].Verbs.Names(), " ") != want {
				t.Errorf("verbs %s are read from %s as %v; want %q", what, from, diff, want)
			}
		}
	}
}

// No document costs more than n log n. These take a second at most on an idle machine; a
// step that compares each of 30,000 with each would take very long.
func TestNoDocumentCostsMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	each := func(format string) func(i int) string { // %[1]d is the number
		return func(i int) string { return fmt.Sprintf(format, i) }
	}
	const group, groupEnd = `{"metadata":{"name":"g"},"versions":[`, `]}`
	rows := func(resource func(i int) string) func(n int) string {
		return func(n int) string {
			return group + `{"version":"v1","resources":[` + repeat(n, resource) + `]}` + groupEnd
		}
	}
	groups := func(g func(i int) string) func(n int) string { return func(n int) string { return repeat(n, g) } }
	caseOf := func(i int) string { // one of many spellings of the same kind
		kind := []byte("abcdefghijklmnopqrst")
		for bit := range kind {
			kind[bit] -= byte(i>>bit&1) * ('a' - 'A')
		}
		return fmt.Sprintf(`{"resource":"r%d","singularResource":"s%[1]d","responseKind":{"kind":"%s"}}`, i, kind)
	}
	for name, items := range map[string]func(n int) string{
		"kinds that clash in lower case": rows(caseOf),
		"one singular name": rows(
			each(`{"resource":"r%d","singularResource":"s","responseKind":{"kind":"K%[1]d"}}`),
		),
		"names of lists": rows(func(i int) string {
			return fmt.Sprintf(`{"resource":"k%dlists","singularResource":"k%dlist","responseKind":{"kind":"K%[1]d"}}`, i, i+1)
		}),
		"lists of lists": rows(func(i int) string {
			return fmt.Sprintf(`{"resource":"r%d","responseKind":{"kind":"K%s"}}`, i, strings.Repeat("List", i%60))
		}),
		"versions": func(n int) string {
			return group + repeat(n, each(`{"version":"v%d","freshness":"Stale"}`)) + groupEnd
		},
		"one group": groups(each(group + `{"version":"v%d"},{"version":"w%[1]d"}` + groupEnd)),
		"names in names": groups(func(i int) string {
			return fmt.Sprintf(`{"metadata":{"name":"%s%d"}}`, strings.Repeat("x", i%200), i/200)
		}),
		"long names": func(n int) string {
			return `{"metadata":{"name":"` + strings.Repeat("x", 1<<20) + `"}},` + repeat(n, each(`{"metadata":{"name":"g%d"}}`))
		},
		"groups of one table": groups(each(`{"metadata":{"name":"g%d"},"versions":[{"version":"v1","resources":[{"resource":"rs","responseKind":{"kind":"R"}}]}]}`)),
	} {
		began := time.Now()
		doc, err := decodeDocument(aggregatedJSON(items(30_000)), namedPath, false)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		use(&groupList{}, doc)
		if took := time.Since(began); took > time.Minute { // a second at most, unless the machine is very busy
			t.Errorf("30,000 %s have taken %v", name, took)
		}
	}
}

// decodeAll decodes data as every kind of document, and uses the result as a mapper would.
func decodeAll(data []byte) {
	for _, keepLists := range []bool{false, true} {
		core, coreErr := decodeDocument(data, corePath, keepLists)
		named, namedErr := decodeDocument(data, namedPath, keepLists)
		if coreErr == nil && namedErr == nil {
			use(core, named)
		} else if namedErr == nil {
			use(&groupList{}, named)
		}
	}
	gv := schema.GroupVersion{Group: "g0001.example.com", Version: "v2"}
	_, _ = decodeGroup(data, schema.GroupVersion{Group: gv.Group})
	_, _ = decodeGroup(data, schema.GroupVersion{})
	_, _ = decodeTable(data, gv, false)
	_, _ = decodeTable(data, gv, true)
}

func use(core, named *groupList) {
	s := new(snapshot.Snapshot).WithDocument(documentOf(core, named, nil), 1)
	s = s.Reset(2).WithDocument(documentOf(core, named, nil), 3)
	snapshot.Diff(new(snapshot.Snapshot), s)
	for range 20 { // enough for the index of names
		_, _, _ = s.KindFor(schema.GroupVersionResource{Resource: "kind0001as"})
		_, _, _ = s.KindFor(schema.GroupVersionResource{Group: "g", Resource: "klists"})
	}
}

// No document makes a decoder panic, or hang. Run it with -fuzz to look further than at the seeds.
func FuzzDecode(f *testing.F) {
	server := fakeapi.New(oddities()...)
	server.SetForms(fakeapi.Forms{V2: true, V2beta1: true, Protobuf: true})
	for _, path := range []string{"/api", "/apis", "/apis/g0001.example.com", "/apis/g0001.example.com/v2"} {
		for _, accept := range append(strings.Split(acceptDocument, ","), "application/vnd.kubernetes.protobuf") {
			data := body(server, path, accept)
			f.Add(data)
			f.Add(data[:len(data)/2])
		}
	}
	for _, data := range []string{
		"",
		" ",
		"k8s\x00",
		"k8s\x00\x0a",
		"null",
		"[]",
		`""`,
		"0",
		"{",
		`{"kind":"APIGroupList"}`,
		`{"kind":"APIVersions","versions":[1]}`,
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
	for _, accept := range strings.Split(acceptDocument, ",")[:2] {
		data := body(server, "/apis", accept)
		if _, err := decodeDocument(append(slices.Clone(data), '}'), namedPath, false); err == nil {
			t.Errorf("%s: a byte too long, and taken for whole", accept)
		}
		for i := range data {
			if _, err := decodeDocument(data[:i], namedPath, false); err == nil && i < len(data)-trailer {
				t.Errorf("%s: cut off after %d of %d bytes, and taken for whole", accept, i, len(data))
			}
			damaged := slices.Clone(data)
			for _, b := range []byte{0xff, damaged[i] ^ 8} {
				damaged[i] = b
				decodeAll(damaged)
			}
		}
	}
}

// No stream that a server sends causes a panic or is read without end.
func FuzzWatch(f *testing.F) {
	const object = `"object":{"kind":"PartialObjectMetadata","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"6"}}}`
	for _, seed := range []string{
		`{"type":"ADDED",` + object + `{"type":"BOOKMARK",` + object,
		`{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","code":410}}`,
		`{"type":"ERROR"}`, `{"type":null,"object":null}`, `[]`, ``, `<html>`, `{"type":"ADDED","object":{"metadata":"x"}}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, sent []byte) {
		c := newClient(t, transport(func(req *http.Request) (*http.Response, error) {
			return &http.Response{
				StatusCode: http.StatusOK, Header: http.Header{}, Request: req, Body: io.NopCloser(bytes.NewReader(sent)),
			}, nil
		}))
		place, events, crds := "5", 0, schema.GroupVersionResource{
			Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions",
		}
		err := c.Watch(context.Background(), crds, &place, time.Minute, func() {}, func() { events++ })
		if events > len(sent) || len(place) > maxResourceVersion || place != "" && err != nil {
			t.Errorf("%d events of %d bytes, the next watch begins at %q after %v", events, len(sent), place, err)
		}
		if version, err := c.currentResourceVersion(context.Background(), crds); (version == "") == (err == nil) ||
			len(version) > maxResourceVersion {
			t.Errorf("version %q, %v; want one of the two, and %d bytes at most", version, err, maxResourceVersion)
		}
	})
}
