// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// InstallAs is Install of a kind whose resource has a name of its own.
func (s *Server) InstallAs(ctx context.Context, kind Kind, plural string) error {
	crd := kind.crd()
	crd.Name = plural + "." + kind.Group
	crd.Spec.Names.Plural = plural
	return s.Client.Create(ctx, crd)
}

// Break adds a version to a kind, which becomes the preferred one if its name
// says so, and into which nothing can be converted: to list it is an error as
// long as there is an object that was stored before.
func (s *Server) Break(ctx context.Context, kind Kind, version string) error {
	crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: kind.crd().Name}}
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return err
	}
	before := client.MergeFrom(crd.DeepCopy())
	added := *crd.Spec.Versions[0].DeepCopy()
	added.Name, added.Storage = version, false
	crd.Spec.Versions = append(crd.Spec.Versions, added)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook: &apiextensionsv1.WebhookConversion{
			ClientConfig:             &apiextensionsv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/nobody-listens")},
			ConversionReviewVersions: []string{"v1"},
		},
	}
	return s.Client.Patch(ctx, crd, before)
}
