// SPDX-License-Identifier: Apache-2.0

package discovery

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// allocated returns how many bytes f takes from the heap, garbage included.
func allocated(f func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
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
	spread, spreadJSON := message{}, make([]string, 0, 100)
	for i := range 100 {
		spread = spread.with(listItems, group(i, version(maxElements/80)))
		resources := strings.Repeat(`{"responseKind":{"kind":"K"}},`, maxElements/80)
		spreadJSON = append(spreadJSON, fmt.Sprintf(`{"metadata":{"name":"g%d"},"versions":[{"resources":[%s{}]}]}`, i, resources))
	}
	inJSON := func(items string) []byte {
		return []byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + items + `]}`)
	}
	for name, test := range map[string]struct {
		body []byte
		want string
		most uint64
	}{
		"versions of nothing":         {aggregatedProtobuf(message{}.with(listItems, strings.Repeat("\x12\x00", size/2))), "elements", 4 << 20},
		"versions of nothing in JSON": {inJSON(`{"versions":[` + strings.Repeat(`{},`, maxElements+1) + `{}]}`), "elements", 1 << 20},
		"resources of one version":    {aggregatedProtobuf(message{}.with(listItems, group(0, version(maxElements)))), "elements", 256 << 20},
		"resources of many groups":    {aggregatedProtobuf(spread), "elements", 1 << 30}, // tables and all
		"the same in JSON":            {inJSON(strings.Join(spreadJSON, ",")), "elements", 1 << 20},
		"quotes":                      {inJSON(`{"a":"\\\",[{` + strings.Repeat(`,`, maxElements) + `"},` + strings.Repeat(`{},`, maxElements) + `{}`), "elements", 1 << 20},
	} {
		var err error
		took := allocated(func() { _, err = decodeBulk(test.body, namedPath) })
		if err == nil || !strings.Contains(err.Error(), test.want) || took > test.most {
			t.Errorf("%s: %d bytes were taken for %d, and the error is %v", name, took, len(test.body), err)
		}
	}
	groups := message{}
	for i := range maxGroups + 1 {
		groups = groups.with(listItems, group(i))
	}
	for name, body := range map[string][]byte{
		"groups": aggregatedProtobuf(groups), "in JSON": inJSON(strings.Repeat("{},", maxGroups) + "{}"),
		"listed": []byte(`{"kind":"APIGroupList","apiVersion":"v1","groups":[` + strings.Repeat("{},", maxGroups) + `{}]}`),
	} {
		if _, err := decodeBulk(body, namedPath); err == nil || !strings.Contains(err.Error(), "more than 65536 groups") {
			t.Errorf("too many %s: %v", name, err)
		}
	}
	status := []byte(`{"kind":"Status","message":"why","details":{"causes":[{}` + strings.Repeat(",{}", size/3) + `]}}`)
	var said briefStatus
	if took := allocated(func() { said, _ = statusOf(status) }); said.Message != "why" || took > 1<<20 {
		t.Errorf("a Status: %d bytes were taken for %d, message %q", took, len(status), said.Message)
	}
}

// A large server is no hostile one: this one has 2,000 groups of two versions with
// 30 kinds each.
func TestLargeServersAreRead(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	server := fakeapi.New(fakeapi.Typical(1, 2, 30)[1:]...)
	forms := strings.Split(acceptBulk, ",")
	inJSON := body(t, server, "/apis", forms[1])
	start := bytes.Index(inJSON, []byte(`"items":[`)) + len(`"items":[`)
	end := bytes.LastIndexByte(inJSON, ']')
	item, items := inJSON[start:end], make([]string, 1000)
	inProtobuf := body(t, server, "/apis", forms[0])
	list := new(wire).field(inProtobuf[len(protobufMagic):], unknownRaw)
	var many message
	for i := range items {
		name := fmt.Sprintf("g%04d", i) // as long as the one group's name, so that the lengths are still right
		items[i] = strings.ReplaceAll(string(item), "g0001", name)
		many = append(many, bytes.ReplaceAll(list, []byte("g0001"), []byte(name))...)
	}
	for form, data := range map[string][]byte{
		"JSON":     slices.Concat(inJSON[:start], []byte(strings.Join(items, ",")), inJSON[end:]),
		"protobuf": aggregatedProtobuf(many),
	} {
		doc, err := decodeBulk(data, namedPath)
		if err != nil || len(doc.groups) != 1000 || len(doc.groups[999].Versions()) != 2 {
			t.Errorf("%s, %d MiB: %v", form, len(data)>>20, err)
		}
	}
}

// A text of any length costs little, and where it is cut no part of a secret remains.
func TestLongTextsCostLittle(t *testing.T) {
	for _, size := range []int{10, 999, 5000, maxSearched + 1} {
		secret := strings.Repeat("x-", size/2) + "y"
		for _, length := range []int{maxErrorText, maxSearched, 16 << 20} {
			text := "said: " + strings.Repeat("Bearer "+secret, length/size+1)
			c := &Client{secrets: []string{secret}}
			var shown string
			if took := allocated(func() { shown = c.redact(text, nil) }); took > 1<<20 {
				t.Errorf("%d bytes were allocated for %d", took, len(text))
			}
			if strings.Contains(shown, "x-") || shown == "" || len(shown) > maxErrorText {
				t.Errorf("of a secret of %d bytes: %s", size, shown)
			}
		}
	}
}

// A group has at most as many versions as the bound, and one that stands for the others,
// whatever form says so.
func TestVersionsOfAGroupAreBounded(t *testing.T) {
	var aggregated, listed, names []string
	for i := range 100 {
		aggregated = append(aggregated, fmt.Sprintf(`{"version":"v%d","resources":[{"resource":"rs","responseKind":{"kind":"R"}}]}`, i))
		listed = append(listed, fmt.Sprintf(`{"version":"v%d"}`, i))
		names = append(names, fmt.Sprintf(`"v%d"`, i))
	}
	inGroup := func(versions []string) string {
		return `{"metadata":{"name":"g"},"name":"g","versions":[` + strings.Join(versions, ",") + `]}`
	}
	for name, test := range map[string]struct{ path, body string }{
		"aggregated":     {namedPath, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + inGroup(aggregated) + `]}`},
		"listed":         {namedPath, `{"kind":"APIGroupList","groups":[` + inGroup(listed) + `]}`},
		"core":           {corePath, `{"kind":"APIVersions","versions":[` + strings.Join(names, ",") + `]}`},
		"in many groups": {namedPath, `{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + inGroup(aggregated[:50]) + "," + inGroup(aggregated[50:]) + `]}`},
	} {
		doc, err := decodeBulk([]byte(test.body), test.path)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		versions := documentOf(&half{}, doc, nil).Groups()[0].Versions()
		if len(versions) != maxVersions+1 {
			t.Errorf("%s: %d versions", name, len(versions))
			continue
		}
		for i, v := range versions {
			if v.Name != fmt.Sprintf("v%d", i) || (v.Err != nil) != (i == maxVersions) {
				t.Errorf("%s: version %d is %s with error %v", name, i, v.Name, v.Err)
			}
		}
	}
	if _, err := decodeGroup([]byte(`{"kind":"APIGroup","name":"g","versions":[`+strings.Join(listed, ",")+`]}`), schema.GroupVersion{Group: "g"}); err == nil || !strings.Contains(err.Error(), "64 versions") {
		t.Errorf("a list: %v", err)
	}
}

// No document costs more than n log n. These take a second at most on an idle machine; a
// step that compares each of 30,000 with each would take very long.
func TestNoDocumentCostsMinutes(t *testing.T) {
	if testing.Short() {
		t.Skip("slow")
	}
	repeat := func(n int, text func(i int) string) string {
		parts := make([]string, n)
		for i := range parts {
			parts[i] = text(i)
		}
		return strings.Join(parts, ",")
	}
	rows := func(resource func(i int) string) func(n int) string {
		return func(n int) string {
			return `{"metadata":{"name":"g"},"versions":[{"version":"v1","resources":[` + repeat(n, resource) + `]}]}`
		}
	}
	caseOf := func(i int) string { // one of many spellings of the same kind
		kind := []byte("abcdefghijklmnopqrst")
		for bit := range kind {
			if i>>bit&1 == 1 {
				kind[bit] -= 'a' - 'A'
			}
		}
		return string(kind)
	}
	for name, items := range map[string]func(n int) string{
		"kinds that clash in lower case": rows(func(i int) string {
			return fmt.Sprintf(`{"resource":"r%d","singularResource":"s%d","responseKind":{"kind":"%s"}}`, i, i, caseOf(i))
		}),
		"one singular name": rows(func(i int) string {
			return fmt.Sprintf(`{"resource":"r%d","singularResource":"s","responseKind":{"kind":"K%d"}}`, i, i)
		}),
		"names of lists": rows(func(i int) string {
			return fmt.Sprintf(`{"resource":"k%dlists","singularResource":"k%dlist","responseKind":{"kind":"K%d"}}`, i, i+1, i)
		}),
		"lists of lists": rows(func(i int) string {
			return fmt.Sprintf(`{"resource":"r%d","responseKind":{"kind":"K%s"}}`, i, strings.Repeat("List", i%60))
		}),
		"versions": func(n int) string {
			return `{"metadata":{"name":"g"},"versions":[` + repeat(n, func(i int) string { return fmt.Sprintf(`{"version":"v%d","freshness":"Stale"}`, i) }) + `]}`
		},
		"one group": func(n int) string {
			return repeat(n, func(i int) string {
				return fmt.Sprintf(`{"metadata":{"name":"g"},"versions":[{"version":"v%d"},{"version":"w%d"}]}`, i, i)
			})
		},
		"names in names": func(n int) string {
			return repeat(n, func(i int) string {
				return fmt.Sprintf(`{"metadata":{"name":"%s%d"}}`, strings.Repeat("x", i%200), i/200)
			})
		},
		"long names": func(n int) string {
			return fmt.Sprintf(`{"metadata":{"name":"%s"}},`, strings.Repeat("x", 1<<20)) + repeat(n, func(i int) string { return fmt.Sprintf(`{"metadata":{"name":"g%d"}}`, i) })
		},
		"groups of one table": func(n int) string {
			return repeat(n, func(i int) string {
				return fmt.Sprintf(`{"metadata":{"name":"g%d"},"versions":[{"version":"v1","resources":[{"resource":"rs","responseKind":{"kind":"R"}}]}]}`, i)
			})
		},
	} {
		body := []byte(`{"kind":"APIGroupDiscoveryList","apiVersion":"apidiscovery.k8s.io/v2","items":[` + items(30_000) + `]}`)
		began := time.Now()
		doc, err := decodeBulk(body, namedPath)
		if err != nil {
			t.Fatal(name, err)
		}
		use(&half{}, doc)
		if took := time.Since(began); took > time.Minute { // some seconds at most, unless the machine is very busy
			t.Errorf("%s: %v", name, took)
		}
	}
}
