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
		for _, method := range request.FindAllStringSubmatch(string(file.Data), -1) {
			if method[1] != r.receiver {
				continue
			}
			if err := writeFollowing(&body, r.name, method[2], method[3], method[4], r.follower); err != nil {
				return err
			}
			written++
		}
		like := regexp.MustCompile(`(?m)^func \(` + regexp.QuoteMeta(r.receiver) + `\) [A-Z]\w*\(\s*ctx `)
		if written == 0 || written != len(like.FindAll(file.Data, -1)) {
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

// writeFollowing writes the method that sends the same request and follows the mapper.
func writeFollowing(out *strings.Builder, typeName, name, params, results, follower string) error {
	var args []string
	hasObj := false
	for _, param := range strings.Split(params, ", ") {
		arg, kind, _ := strings.Cut(param, " ")
		hasObj = hasObj || arg == "obj"
		if strings.HasPrefix(kind, "...") {
			arg += "..."
		}
		args = append(args, arg)
	}
	does := map[string]string{"Get": "reads", "GetSubResource": "reads", "List": "lists"}[name]
	if does == "" {
		does = "writes"
	}
	call := fmt.Sprintf("c.%s.%s(%s)", typeName, name, strings.Join(args, ", "))
	through := fmt.Sprintf("c.%sfollowing(ctx, obj, %s, func()", follower, does)
	first, rest, two := strings.Cut(strings.Trim(results, "()"), ", ")
	fmt.Fprintf(out, "\nfunc (c *%s) %s(%s)", following(typeName), name, params)
	switch {
	case hasObj && results == "error":
		fmt.Fprintf(out, " error {\n\treturn %s error {\n\t\treturn %s\n\t})\n}\n", through, call)
	case hasObj && two && rest == "error":
		fmt.Fprintf(out, " (result %s, err error) {\n\terr = %s (err error) {\n\t\tresult, err = %s\n\t\treturn err\n\t})\n\treturn result, err\n}\n",
			first, through, call)
	default:
		return fmt.Errorf("upstream's method %s of %s has no obj, or returns something else than an error and one value at most: this release needs a look", name, typeName)
	}
	return nil
}
