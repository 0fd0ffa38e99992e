// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/hack/control"
)

const (
	pollEvery = 5 * time.Millisecond
	pollFor   = 90 * time.Second // an API server that starts on a busy machine takes its time
)

// Server is a real API server with its etcd.
type Server struct {
	Kubeconfig string        // path of a file, for an administrator
	Client     client.Client // the test's own; core types and CRDs

	plane      *control.Plane
	discovery  *discovery.DiscoveryClient
	aggregated bool // it has aggregated discovery
}

// startServer starts an API server that ends with the test. The configuration
// leads to it as an administrator, without a rate limit.
func startServer(ctx context.Context, t *testing.T) (*Server, *rest.Config) {
	t.Helper()
	assets, err := control.Assets()
	must(t, err)
	s := &Server{Kubeconfig: filepath.Join(t.TempDir(), "kubeconfig")}
	s.plane, err = control.Start(ctx, assets, 1)
	must(t, err)
	t.Cleanup(func() {
		if err := s.plane.Stop(); err != nil {
			t.Error(err)
		}
	})
	cfg := s.plane.Servers[0].Config()
	must(t, os.WriteFile(s.Kubeconfig, kubeconfig("server: "+cfg.Host+", insecure-skip-tls-verify: true", "token: "+cfg.BearerToken), 0o600))
	types := runtime.NewScheme()
	must(t, scheme.AddToScheme(types), apiextensionsv1.AddToScheme(types))
	s.Client, err = client.New(cfg, client.Options{Scheme: types})
	must(t, err)
	s.discovery, err = discovery.NewDiscoveryClientForConfig(cfg)
	must(t, err)
	_, resources, _, err := s.discovery.GroupsAndMaybeResources()
	must(t, err)
	s.aggregated = resources != nil
	return s, cfg
}

// kubeconfig is one with a cluster and a user.
func kubeconfig(cluster, user string) []byte {
	return fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: server, cluster: {%s}}]
users: [{name: user, user: {%s}}]
contexts: [{name: server, context: {cluster: server, user: user}}]
current-context: server
`, cluster, user)
}

// Kill ends the API server at once, with SIGKILL; its etcd goes on. revive starts
// it again, and returns when it is ready.
func (s *Server) Kill() (revive func(context.Context) error) {
	server := s.plane.Servers[0]
	server.Kill()
	return func(ctx context.Context) error {
		if err := server.Start(); err != nil {
			return err
		}
		return server.AwaitReady(ctx)
	}
}

// Empty ends the API server and its etcd, starts both again with nothing in them,
// and returns when they are ready. So the server looks like a cluster that was
// restored from an empty backup.
func (s *Server) Empty(ctx context.Context) error {
	revive := s.Kill()
	s.plane.Etcd.Kill()
	if err := errors.Join(s.plane.Empty(), s.plane.Etcd.Start()); err != nil {
		return err
	}
	return revive(ctx)
}

// Kind is a custom resource, namespaced unless said otherwise.
type Kind struct {
	Group, Kind string
	Versions    []string // all served; the first is stored
	Cluster     bool     // of the cluster, not of a namespace
	Status      bool     // it has the status subresource
	Plural      string   // the resource; "": the kind in small letters and an s
}

func (k Kind) resource() string {
	if k.Plural != "" {
		return k.Plural
	}
	return strings.ToLower(k.Kind) + "s"
}

func (k Kind) gv(version string) schema.GroupVersion {
	return schema.GroupVersion{Group: k.Group, Version: version}
}

// Install creates the kind's CRD, or updates its versions.
func (s *Server) Install(ctx context.Context, kind Kind) error {
	want := kind.crd()
	err := s.Client.Create(ctx, want)
	if !apierrors.IsAlreadyExists(err) {
		return err
	}
	return s.change(ctx, kind, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) { spec.Versions = want.Spec.Versions })
}

// Uninstall deletes the kind's CRD and waits until it is gone.
func (s *Server) Uninstall(ctx context.Context, kind Kind) error {
	crd := kind.crd()
	if err := s.Client.Delete(ctx, crd); err != nil {
		return err
	}
	return s.Await(ctx, "the deletion of "+crd.Name, func() (bool, error) {
		err := s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd)
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	})
}

// Make creates an object of the kind in its first version, for the operator of a
// class, as soon as the server accepts it. It asks no mapper for the path.
func (s *Server) Make(ctx context.Context, kind Kind, name, class string) error {
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
		err := s.discovery.RESTClient().Post().AbsPath(path.Join(where, kind.resource())).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}

// AwaitServed returns once the server serves the kind in all of its versions, as
// /apis/g/v says. A server without aggregated discovery must list the versions at
// /apis/g as well, which it does some milliseconds later: only there a client finds
// versions that it does not know.
func (s *Server) AwaitServed(ctx context.Context, kind Kind) error {
	return s.Await(ctx, kind.Kind+" in "+kind.Group, func() (bool, error) {
		served, err := s.served(kind)
		if !served || err != nil || s.aggregated {
			return served, err
		}
		group, err := s.group(ctx, kind.Group)
		return has(group, kind.Versions), err
	})
}

// AwaitSettled returns once all of the server's documents agree: each shows the
// kind, and preferred as its group's preferred version.
func (s *Server) AwaitSettled(ctx context.Context, kind Kind, preferred string) error {
	return s.Await(ctx, kind.Kind+" in all documents of "+kind.Group, func() (bool, error) {
		served, err := s.served(kind)
		if !served || err != nil {
			return false, err
		}
		group, err := s.group(ctx, kind.Group)
		if err != nil || !has(group, kind.Versions) || group.PreferredVersion.Version != preferred {
			return false, err
		}
		return s.bulkShows(kind, preferred)
	})
}

// AwaitGone returns once neither a live endpoint nor the bulk document shows the kind.
func (s *Server) AwaitGone(ctx context.Context, kind Kind) error {
	return s.Await(ctx, "the end of "+kind.Kind+" in "+kind.Group, func() (bool, error) {
		for _, version := range kind.Versions {
			live, err := s.version(kind.gv(version))
			if err != nil || kind.in(live, false) || kind.in(live, true) {
				return false, err
			}
		}
		_, resources, _, err := s.discovery.GroupsAndMaybeResources()
		for _, version := range kind.Versions {
			bulk := resources[kind.gv(version)]
			if err != nil || kind.in(bulk, false) || kind.in(bulk, true) {
				return false, err
			}
		}
		return true, nil
	})
}

// Await calls yes until it returns true.
func (s *Server) Await(ctx context.Context, what string, yes func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, pollFor)
	defer cancel()
	for {
		ok, err := yes()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(pollEvery):
		}
	}
}

func (s *Server) served(kind Kind) (bool, error) {
	for _, version := range kind.Versions {
		resources, err := s.version(kind.gv(version))
		if err != nil || !kind.in(resources, !kind.Cluster) {
			return false, err
		}
	}
	return true, nil
}

// bulkShows reports whether the bulk document shows the kind. Without aggregated
// discovery that document has only groups, so bulkShows looks at the group alone.
func (s *Server) bulkShows(kind Kind, preferred string) (bool, error) {
	groups, resources, _, err := s.discovery.GroupsAndMaybeResources()
	if err != nil {
		return false, err
	}
	for _, version := range kind.Versions {
		if s.aggregated && !kind.in(resources[kind.gv(version)], !kind.Cluster) {
			return false, nil
		}
	}
	return slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool {
		return g.Name == kind.Group && g.PreferredVersion.Version == preferred
	}), nil
}

func (s *Server) group(ctx context.Context, name string) (*metav1.APIGroup, error) {
	group := &metav1.APIGroup{}
	err := s.discovery.RESTClient().Get().AbsPath("/apis/" + name).Do(ctx).Into(group)
	return group, client.IgnoreNotFound(err)
}

func (s *Server) version(gv schema.GroupVersion) (*metav1.APIResourceList, error) {
	resources, err := s.discovery.ServerResourcesForGroupVersion(gv.String())
	return resources, client.IgnoreNotFound(err)
}

func has(group *metav1.APIGroup, versions []string) bool {
	for _, version := range versions {
		if !slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version }) {
			return false
		}
	}
	return true
}

func (k Kind) in(list *metav1.APIResourceList, namespaced bool) bool {
	return list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
		return r.Kind == k.Kind && r.Namespaced == namespaced
	})
}

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
