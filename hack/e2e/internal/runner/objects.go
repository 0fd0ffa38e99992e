// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Make creates an object of the kind, for the operator of a class, in the kind's
// first version, as soon as the server lets it. No mapper is asked for the path.
func (s *Server) Make(ctx context.Context, kind Kind, plural, name, class string) error {
	gv := kind.gv(kind.Versions[0])
	where := path.Join("/apis", gv.String())
	metadata := map[string]any{"name": name}
	if !kind.Cluster {
		where, metadata["namespace"] = path.Join(where, "namespaces/default"), "default"
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": gv.String(), "kind": kind.Kind, "metadata": metadata, "spec": map[string]any{"size": 1, "class": class},
	})
	if err != nil {
		return err
	}
	return s.Await(ctx, fmt.Sprintf("%s %q to be made", kind.Kind, name), func() (bool, error) {
		err := s.discovery.RESTClient().Post().AbsPath(path.Join(where, plural)).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// SetServed has the server serve a version of a kind, or no longer.
func (s *Server) SetServed(ctx context.Context, kind Kind, version string, served bool) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(kind.crd()), crd); err != nil {
		return err
	}
	before := client.MergeFrom(crd.DeepCopy())
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Name == version {
			crd.Spec.Versions[i].Served = served
		}
	}
	return s.Client.Patch(ctx, crd, before)
}

// UninstallAs is Uninstall of a kind whose resource has a name of its own.
func (s *Server) UninstallAs(ctx context.Context, kind Kind, plural string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = plural + "." + kind.Group
	if err := s.Client.Delete(ctx, crd); err != nil {
		return err
	}
	return s.Await(ctx, "the deletion of "+crd.Name, func() (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// Plural is the resource of a kind that was not given another.
func (k Kind) Plural() string { return strings.ToLower(k.Kind) + "s" }
