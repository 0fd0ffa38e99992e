// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"go/ast"
	"go/format"
	"path"
	"strings"

	"github.com/freshmapper/freshmapper/hack/fork/source"
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

// putRequests adds a file in which each request of upstream's client has one of
// the same name and form that follows the mapper.
func putRequests(d *draft) error {
	var body strings.Builder
	for _, r := range requesters {
		fmt.Fprintf(&body, "\n// %s is %s, whose requests follow the mapper.\ntype %[1]s struct{ %[2]s }\n", following(r.name), r.name)
		err := d.files.Edit(path.Join(clientDir, r.file), func(f *source.File) {
			before := body.Len()
			for _, decl := range f.Decls() {
				if method, ok := decl.(*ast.FuncDecl); ok && f.Receiver(method) == r.receiver && isRequest(f, method) {
					writeFollowing(&body, f, method, r.name, r.follower)
				}
			}
			if body.Len() == before {
				f.Unexpected("method of (%s) that sends a request", r.receiver)
			}
		})
		if err != nil {
			return err
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

// isRequest reports whether a method is exported and takes a context.
func isRequest(f *source.File, method *ast.FuncDecl) bool {
	params := method.Type.Params.List
	return method.Name.IsExported() && len(params) > 1 && f.Text(params[0]) == "ctx context.Context"
}

// writeFollowing writes the method that sends the same request and follows the mapper.
func writeFollowing(out *strings.Builder, f *source.File, method *ast.FuncDecl, typeName, follower string) {
	var args []string
	hasObj := false
	for _, param := range method.Type.Params.List {
		_, variadic := param.Type.(*ast.Ellipsis)
		for _, name := range param.Names {
			hasObj = hasObj || name.Name == "obj"
			arg := name.Name
			if variadic {
				arg += "..."
			}
			args = append(args, arg)
		}
	}
	results := method.Type.Results.List
	if !hasObj || f.Text(results[len(results)-1].Type) != "error" || len(results) > 2 {
		f.Unexpected("method %s of %s with an obj that returns an error, and no more than one value besides", method.Name.Name, typeName)
		return
	}
	does := "writes"
	switch method.Name.Name {
	case "Get", "GetSubResource":
		does = "reads"
	case "List":
		does = "lists"
	}
	call := fmt.Sprintf("c.%s.%s(%s)", typeName, method.Name.Name, strings.Join(args, ", "))
	through := fmt.Sprintf("c.%sfollowing(ctx, obj, %s, func()", follower, does)
	fmt.Fprintf(out, "\nfunc (c *%s) %s%s", following(typeName), method.Name.Name, f.Text(method.Type.Params))
	if len(results) == 1 {
		fmt.Fprintf(out, " error {\n\treturn %s error {\n\t\treturn %s\n\t})\n}\n", through, call)
		return
	}
	fmt.Fprintf(out, " (result %s, err error) {\n\terr = %s (err error) {\n\t\tresult, err = %s\n\t\treturn err\n\t})\n\treturn result, err\n}\n",
		f.Text(results[0].Type), through, call)
}
