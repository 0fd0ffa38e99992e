// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// crd is the kind's CustomResourceDefinition, whose objects may hold anything.
func (k Kind) crd() *apiextensionsv1.CustomResourceDefinition {
	scope := apiextensionsv1.NamespaceScoped
	if k.Cluster {
		scope = apiextensionsv1.ClusterScoped
	}
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: k.resource() + "." + k.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: k.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: k.Kind, ListKind: k.Kind + "List", Singular: strings.ToLower(k.Kind), Plural: k.resource(),
			},
			Scope: scope,
		},
	}
	for i, version := range k.Versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true),
			}},
		})
		if k.Status {
			crd.Spec.Versions[i].Subresources = &apiextensionsv1.CustomResourceSubresources{
				Status: &apiextensionsv1.CustomResourceSubresourceStatus{},
			}
		}
	}
	return crd
}

// Break adds a version to a kind, which becomes the preferred one if its name
// says so, and into which nothing can be converted: to list it is an error as
// long as there is an object that was stored before.
func (s *Server) Break(ctx context.Context, kind Kind, version string) error {
	return s.change(ctx, kind, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		added := *spec.Versions[0].DeepCopy()
		added.Name, added.Storage = version, false
		spec.Versions = append(spec.Versions, added)
		spec.Conversion = &apiextensionsv1.CustomResourceConversion{
			Strategy: apiextensionsv1.WebhookConverter,
			Webhook: &apiextensionsv1.WebhookConversion{
				ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/nobody-listens")},
				ConversionReviewVersions: []string{"v1"},
			},
		}
	})
}

// SetServed has the server serve a version of a kind, or no longer.
func (s *Server) SetServed(ctx context.Context, kind Kind, version string, served bool) error {
	return s.change(ctx, kind, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) {
		for i := range spec.Versions {
			if spec.Versions[i].Name == version {
				spec.Versions[i].Served = served
			}
		}
	})
}

// change changes a kind's CRD.
func (s *Server) change(ctx context.Context, kind Kind, edit func(*apiextensionsv1.CustomResourceDefinitionSpec)) error {
	crd := kind.crd()
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return err
	}
	before := client.MergeFrom(crd.DeepCopy())
	edit(&crd.Spec)
	return s.Client.Patch(ctx, crd, before)
}
