// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/format"
	"path"
	"regexp"
	"strings"
)

// requesters are the types of upstream's client that send requests, with the field
// that knows how to follow the mapper.
var requesters = []struct{ name, file, receiver, follower string }{
	{"typedClient", "typed_client.go", "c *typedClient", "resources."},
	{"unstructuredClient", "unstructured_client.go", "uc *unstructuredClient", "resources."},
	{"metadataClient", "metadata_client.go", "mc *metadataClient", ""},
}

// following returns the name of the type that sends the requests of another type
// and follows the mapper.
func following(name string) string { return "following" + strings.ToUpper(name[:1]) + name[1:] }

// request matches the first line of a method that is exported and takes a context: its
// receiver, name, parameters and results.
var request = regexp.MustCompile(`(?m)^func \((.*)\) ([A-Z]\w*)\((ctx context\.Context, .*)\) (\S.*) \{$`)

// putRequests adds a file in which each request of upstream's client has one of
// the same name and form that follows the mapper.
func putRequests(d *draft) error {
	var body strings.Builder
	for _, r := range requesters {
		fmt.Fprintf(&body, "\n// %s is %s, whose requests follow the mapper.\ntype %[1]s struct{ %[2]s }\n", following(r.name), r.name)
		file, err := d.upstream(path.Join(clientDir, r.file))
		if err != nil {
			return err
		}
		written := 0
		for _, method := range request.FindAllStringSubmatch(string(file), -1) {
			if method[1] != r.receiver {
				continue
			}
			if err := writeFollowing(&body, r.name, method[2], method[3], method[4], r.follower); err != nil {
				return err
			}
			written++
		}
		like := regexp.MustCompile(`(?m)^func \(` + regexp.QuoteMeta(r.receiver) + `\) [A-Z]\w*\(\s*ctx `)
		if written == 0 || written != len(like.FindAll(file, -1)) {
			return fmt.Errorf("upstream's %s has not only methods of (%s) that send requests with their head on one line: this release needs a look", r.file, r.receiver)
		}
	}
	head := "// SPDX-License-Identifier: Apache-2.0\n\npackage client\n\nimport (\n\t\"context\"\n"
	for _, imported := range []string{"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured", "k8s.io/apimachinery/pkg/runtime"} {
		if strings.Contains(body.String(), path.Base(imported)+".") {
			head += fmt.Sprintf("\n\t%q", imported)
		}
	}
	data, err := format.Source([]byte(head + "\n)\n" + body.String()))
	if err != nil {
		return err
	}
	return d.put(clientDir+"/client_follow_requests.go", data)
}

// typed matches a parameter's type.
var typed = regexp.MustCompile(`(\w+) (\.\.\.)?[^,]*`)

// writeFollowing writes the method that sends the same request and follows the mapper.
func writeFollowing(out *strings.Builder, typeName, name, params, results, follower string) error {
	does := map[string]string{"Get": "reads", "GetSubResource": "reads", "List": "lists"}[name]
	if does == "" {
		does = "writes"
	}
	named, assigned := "err error", "err"
	if first, two := strings.CutSuffix(results, ", error)"); two {
		named, assigned, results = "result "+first[1:]+", err error", "result, err", "error"
	}
	args := typed.ReplaceAllString(params, "$1$2")
	if results != "error" || !strings.Contains(", "+args, ", obj") || strings.Contains(named, "(") {
		return fmt.Errorf("upstream's method %s of %s has no obj, or returns something else than an error and one value at most: this release needs a look", name, typeName)
	}
	fmt.Fprintf(out, "\nfunc (c *%s) %s(%s) (%s) {\n\terr = c.%sfollowing(ctx, obj, %s, func() (err error) {\n", following(typeName), name, params, named, follower, does)
	fmt.Fprintf(out, "\t\t%s = c.%s.%s(%s)\n\t\treturn err\n\t})\n\treturn %[1]s\n}\n", assigned, typeName, name, args)
	return nil
}
