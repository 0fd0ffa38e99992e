// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/format"
	"path"
	"slices"
	"strings"
)

// requesters are the types of upstream's client that send requests, with the field
// that knows how to follow the mapper.
var requesters = []struct{ name, file, receiver, follower string }{
	{"typedClient", "typed_client.go", "c *typedClient", "resources."},
	{"unstructuredClient", "unstructured_client.go", "uc *unstructuredClient", "resources."},
	{"metadataClient", "metadata_client.go", "mc *metadataClient", ""},
}

// following is what a type is called that sends the requests of another so that
// they follow the mapper.
func following(name string) string { return "following" + strings.ToUpper(name[:1]) + name[1:] }

// editClientFields has the client send its requests through types of ours.
func (s *source) editClientFields() error {
	if err := s.putElement("clientRestResources", "mapper", "options.Mapper", "followed(options.Mapper)"); err != nil {
		return err
	}
	if err := s.putElement("metadataClient", "restMapper", "options.Mapper", "resources.mapper"); err != nil {
		return err
	}
	for _, r := range requesters {
		field, err := s.fieldType("client", r.name, r.name)
		if err != nil {
			return err
		}
		s.put(field, following(r.name))
		made, err := s.literal(r.name)
		if err != nil {
			return err
		}
		s.wrap(made, following(r.name)+"{", "}")
	}
	return s.editScope()
}

// editClientWatch makes way for a Watch of ours. It returns how its receiver is led
// to the client.
func (s *source) editClientWatch() (base []string, err error) {
	watch, err := s.method("w *watchingClient", "Watch")
	if err != nil {
		return nil, err
	}
	s.put(watch.Name, "watchOnce")
	for _, name := range []string{"base", "client"} {
		uses := func(sel *ast.SelectorExpr) bool { return s.text(sel) == "w."+name+".typedClient.resources" }
		if _, err := one(s, s.file, "", uses); err == nil {
			return []string{name}, nil
		}
	}
	return nil, s.unexpected("use of w.base.typedClient.resources or w.client.typedClient.resources")
}

// followingRequests returns a file in which each request of upstream's client has
// one of the same name and form that follows the mapper.
func (d *Draft) followingRequests() ([]byte, error) {
	var body bytes.Buffer
	for _, r := range requesters {
		fmt.Fprintf(&body, "\n// %s is %s, whose requests follow the mapper.\ntype %[1]s struct{ %[2]s }\n", following(r.name), r.name)
		name := path.Join(clientDir, r.file)
		upstream, ok := d.Files[name]
		if !ok {
			return nil, missing(name)
		}
		s, err := parseSource(name, upstream.Data)
		if err != nil {
			return nil, err
		}
		n := 0
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && s.isRequest(f, r.receiver) {
				if err := s.writeFollowing(&body, f, r.name, r.follower); err != nil {
					return nil, err
				}
				n++
			}
		}
		if n == 0 {
			return nil, s.unexpected("method of (%s) that sends a request", r.receiver)
		}
	}
	return format.Source(slices.Concat(requestsHead(body.Bytes()), body.Bytes()))
}

func requestsHead(body []byte) []byte {
	var head bytes.Buffer
	head.WriteString("// SPDX-License-Identifier: Apache-2.0\n\npackage client\n\nimport (\n\t\"context\"\n")
	for _, imported := range []string{"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured", "k8s.io/apimachinery/pkg/runtime"} {
		if bytes.Contains(body, []byte(path.Base(imported)+".")) {
			fmt.Fprintf(&head, "\n\t%q", imported)
		}
	}
	head.WriteString("\n)\n")
	return head.Bytes()
}

// isRequest reports whether f is a method for others that takes a context.
func (s *source) isRequest(f *ast.FuncDecl, receiver string) bool {
	params := f.Type.Params.List
	return f.Recv != nil && strings.Trim(s.text(f.Recv), "()") == receiver && f.Name.IsExported() &&
		len(params) > 1 && s.text(params[0]) == "ctx context.Context"
}

// writeFollowing writes the method that sends the request f and follows the mapper.
func (s *source) writeFollowing(out *bytes.Buffer, f *ast.FuncDecl, typeName, follower string) error {
	var args []string
	hasObj := false
	for _, param := range f.Type.Params.List {
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
	results := f.Type.Results.List
	if !hasObj || s.text(results[len(results)-1].Type) != "error" || len(results) > 2 {
		return s.unexpected("method %s of %s with an obj that returns an error, and no more than one value besides", f.Name.Name, typeName)
	}
	does := "writes"
	if slices.Contains([]string{"Get", "List", "GetSubResource"}, f.Name.Name) {
		does = "reads"
	}
	call := fmt.Sprintf("c.%s.%s(%s)", typeName, f.Name.Name, strings.Join(args, ", "))
	through := fmt.Sprintf("c.%sfollowing(ctx, obj, %s, func()", follower, does)
	fmt.Fprintf(out, "\nfunc (c *%s) %s%s", following(typeName), f.Name.Name, s.text(f.Type.Params))
	if len(results) == 1 {
		fmt.Fprintf(out, " error {\n\treturn %s error {\n\t\treturn %s\n\t})\n}\n", through, call)
		return nil
	}
	fmt.Fprintf(out, " (result %s, err error) {\n\terr = %s (err error) {\n\t\tresult, err = %s\n\t\treturn err\n\t})\n\treturn result, err\n}\n",
		s.text(results[0].Type), through, call)
	return nil
}
