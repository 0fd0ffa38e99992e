// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"go/ast"
)

const (
	fieldsFile     = clientDir + "/client.go"
	namespacedFile = clientDir + "/namespaced_client.go"
	handlerDir     = "pkg/handler"
	ownerFile      = handlerDir + "/enqueue_owner.go"
)

// editScope has the client tell the scope of a kind from what it knew last, if the
// kind is gone: upstream's mapper never forgets one.
func (s *source) editScope() error {
	scope, err := s.method("c *client", "IsObjectNamespaced")
	if err != nil {
		return err
	}
	call, err := one(s, scope, "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)", func(call *ast.CallExpr) bool {
		return s.text(call) == "apiutil.IsObjectNamespaced(obj, c.scheme, c.mapper)"
	})
	if err != nil {
		return err
	}
	s.put(call.Args[2], "c.typedClient.resources.mapper")
	return nil
}

// editNamespacedClient has the client of a namespace ask the client that it wraps
// for every scope, and list again if the scope was not what it took it for.
func (s *source) editNamespacedClient() error {
	list, err := s.method("n *namespacedClient", "List")
	if err != nil {
		return err
	}
	sent, err := one(s, list, "n.client.List(ctx, obj, opts...)", func(call *ast.CallExpr) bool {
		return s.text(call) == "n.client.List(ctx, obj, opts...)"
	})
	if err != nil {
		return err
	}
	asked, err := one(s, s.file, "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())", func(call *ast.CallExpr) bool {
		return s.text(call) == "apiutil.IsGVKNamespaced(gvk, n.RESTMapper())"
	})
	if err != nil {
		return err
	}
	s.put(sent, "n.listFollowing(ctx, obj, isNamespaceScoped, opts)")
	s.put(asked, "n.IsObjectNamespaced(ofKind(gvk))")
	return s.dropImport(Module + "/pkg/client/apiutil")
}

// keepNamespacedClientFresh edits the client of a namespace. Up to v0.21 it asks for
// scopes nowhere but where it asks the client that it wraps.
func keepNamespacedClientFresh(d *Draft) error {
	if d.Line.Minor >= "v0.22" {
		if err := d.edit(namespacedFile, (*source).editNamespacedClient); err != nil {
			return err
		}
		if err := d.putTemplates(nil, map[string]string{clientDir + "/namespaced_client_follow.go": "namespaced_client_follow.go"}); err != nil {
			return err
		}
	}
	return d.putTemplates(nil, map[string]string{clientDir + "/namespaced_client_follow_test.go": "namespaced_client_follow_test.go"})
}

// dropImport takes out an import that has no use left, with its line.
func (s *source) dropImport(name string) error {
	spec, err := one(s, s.file, "import of "+name, func(spec *ast.ImportSpec) bool {
		return spec.Name == nil && spec.Path.Value == `"`+name+`"`
	})
	if err != nil {
		return err
	}
	line := s.fset.File(spec.Pos()).LineStart(s.fset.Position(spec.Pos()).Line)
	s.replace(s.offset(line), s.offset(spec.End())+len("\n"), "")
	return nil
}

// editOwnerHandler has the handler of owners go on with what it knew last of a kind
// that is gone: it is asked for each event of each object that has such an owner.
func (s *source) editOwnerHandler() error {
	return s.putElement("enqueueRequestForOwner[object]", "mapper", "mapper", "followed(mapper)")
}
