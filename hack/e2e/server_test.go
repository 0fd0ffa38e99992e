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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/hack/control"
)

// patience is how long anything that must come is waited for: it only ends what hangs. A kube-apiserver that
// could not list the objects of a CRD that goes tries that again with pauses that double, which takes minutes on a
// busy machine. Nothing here bounds the time that something takes.
const patience = 5 * time.Minute

// Server is a real API server with its etcd.
type Server struct {
	Kubeconfig string        // path of a file, for an administrator
	Client     client.Client // the test's own; core types and CRDs

	plane     *control.Plane
	discovery *discovery.DiscoveryClient
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
	return s, cfg
}

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

// Empty ends the API server and its etcd, starts both again with nothing in them, and returns when they are ready. So
// the server looks like a cluster that was restored from an empty backup.
func (s *Server) Empty(ctx context.Context) error {
	revive := s.Kill()
	s.plane.Etcd.Kill()
	if err := errors.Join(s.plane.Empty(), s.plane.Etcd.Start()); err != nil {
		return err
	}
	return revive(ctx)
}

// Kind is a custom resource with a status, namespaced unless said otherwise.
type Kind struct {
	Group, Kind string
	Versions    []string // all served; the first is stored
	Cluster     bool     // of the cluster, not of a namespace
	Plural      string   // the resource; "": the kind in small letters and an s
}

func (k Kind) resource() string {
	if k.Plural != "" {
		return k.Plural
	}
	return strings.ToLower(k.Kind) + "s"
}

// Install creates the kind's CRD, or updates its versions, and returns once /apis/g/v shows the kind in all of them.
func (s *Server) Install(ctx context.Context, kind Kind) error {
	want := kind.crd()
	err := s.Client.Create(ctx, want)
	if apierrors.IsAlreadyExists(err) {
		err = s.change(ctx, kind, func(spec *apiextensionsv1.CustomResourceDefinitionSpec) { spec.Versions = want.Spec.Versions })
	}
	if err != nil {
		return err
	}
	return await(ctx, kind.Kind+" in "+kind.Group, func() (bool, error) {
		live, err := s.live(kind)
		return kind.in(live) == len(kind.Versions), err
	})
}

// Settle installs a kind, and returns once the bulk document and the group's list show it,
// too. A mapper after a reset reads nothing else, and a server may be some milliseconds late.
func (s *Server) Settle(ctx context.Context, kind Kind) error {
	if err := s.Install(ctx, kind); err != nil {
		return err
	}
	return await(ctx, kind.Kind+" in all documents of "+kind.Group, func() (bool, error) {
		group, groupErr := s.group(ctx, kind.Group)
		_, bulk, _, err := s.discovery.GroupsAndMaybeResources()
		return has(group, kind.Versions) && kind.in(bulk) == len(kind.Versions), errors.Join(groupErr, err)
	})
}

// Uninstall deletes the kind's CRD, and returns once neither a live endpoint nor the bulk
// document shows the kind in any scope.
func (s *Server) Uninstall(ctx context.Context, kind Kind) error {
	crd := kind.crd()
	if err := s.Client.Delete(ctx, crd); err != nil {
		return err
	}
	other := kind
	other.Cluster = !kind.Cluster
	return await(ctx, "the end of "+crd.Name, func() (bool, error) {
		if err := s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); !apierrors.IsNotFound(err) {
			return false, err
		}
		live, err := s.live(kind)
		_, bulk, _, bulkErr := s.discovery.GroupsAndMaybeResources()
		return kind.in(live)+other.in(live)+kind.in(bulk)+other.in(bulk) == 0, errors.Join(err, bulkErr)
	})
}

// Make creates an object of the kind in its first version, in the namespace default unless
// edit says otherwise, as soon as the server accepts it: it may answer 404 just after it has
// begun to serve the kind. It asks no mapper for the path: the test must not go stale.
func (s *Server) Make(ctx context.Context, kind Kind, name string, edit func(*unstructured.Unstructured)) error {
	object := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"size": 1}}}
	object.SetGroupVersionKind(schema.GroupVersionKind{Group: kind.Group, Version: kind.Versions[0], Kind: kind.Kind})
	object.SetName(name)
	if !kind.Cluster {
		object.SetNamespace(metav1.NamespaceDefault)
	}
	if edit != nil {
		edit(object)
	}
	body, err := json.Marshal(object)
	if err != nil {
		return err
	}
	return await(ctx, fmt.Sprintf("%s %q to be made", kind.Kind, name), func() (bool, error) {
		err := s.discovery.RESTClient().Post().AbsPath(kind.path(object.GetNamespace())).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		return err == nil, err
	})
}

// Object gets an object of the kind, if there is one.
func (s *Server) Object(ctx context.Context, kind Kind, namespace, name string) (*unstructured.Unstructured, error) {
	body, err := s.discovery.RESTClient().Get().AbsPath(kind.path(namespace), name).Do(ctx).Raw()
	if err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	object := &unstructured.Unstructured{}
	return object, json.Unmarshal(body, object)
}

// path is that of the kind's objects in its first version.
func (k Kind) path(namespace string) string {
	group := path.Join("/apis", k.Group, k.Versions[0])
	if k.Cluster {
		return path.Join(group, k.resource())
	}
	return path.Join(group, "namespaces", namespace, k.resource())
}

// await calls yes until it returns true.
func await(ctx context.Context, what string, yes func() (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := yes()
		if ok && err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, errors.Join(ctx.Err(), err))
		case <-time.After(5 * time.Millisecond):
		}
	}
}

func eventually(t *testing.T, what string, yes func() bool) {
	t.Helper()
	must(t, await(t.Context(), what, func() (bool, error) { return yes(), nil }))
}

// live reads the kind's versions at their own paths.
func (s *Server) live(kind Kind) (map[schema.GroupVersion]*metav1.APIResourceList, error) {
	lists := map[schema.GroupVersion]*metav1.APIResourceList{}
	for _, version := range kind.Versions {
		gv := schema.GroupVersion{Group: kind.Group, Version: version}
		list, err := s.discovery.ServerResourcesForGroupVersion(gv.String())
		if client.IgnoreNotFound(err) != nil {
			return nil, err
		}
		lists[gv] = list
	}
	return lists, nil
}

// in counts the versions that lists show the kind in, in its scope.
func (k Kind) in(lists map[schema.GroupVersion]*metav1.APIResourceList) (n int) {
	for _, version := range k.Versions {
		list := lists[schema.GroupVersion{Group: k.Group, Version: version}]
		if list != nil && slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool {
			return r.Kind == k.Kind && r.Namespaced == !k.Cluster
		}) {
			n++
		}
	}
	return n
}

func (s *Server) group(ctx context.Context, name string) (*metav1.APIGroup, error) {
	group := &metav1.APIGroup{}
	err := s.discovery.RESTClient().Get().AbsPath("/apis/" + name).Do(ctx).Into(group)
	return group, client.IgnoreNotFound(err)
}

func has(group *metav1.APIGroup, versions []string) bool {
	return !slices.ContainsFunc(versions, func(version string) bool {
		return !slices.ContainsFunc(group.Versions, func(v metav1.GroupVersionForDiscovery) bool { return v.Version == version })
	})
}

// crd is the kind's CustomResourceDefinition, whose objects may hold anything.
func (k Kind) crd() *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: k.resource() + "." + k.Group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: k.Group,
			Names: apiextensionsv1.CustomResourceDefinitionNames{
				Kind: k.Kind, ListKind: k.Kind + "List", Singular: strings.ToLower(k.Kind), Plural: k.resource(),
			},
			Scope: apiextensionsv1.NamespaceScoped,
		},
	}
	if k.Cluster {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	for i, version := range k.Versions {
		crd.Spec.Versions = append(crd.Spec.Versions, apiextensionsv1.CustomResourceDefinitionVersion{
			Name: version, Served: true, Storage: i == 0,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
				Type: "object", XPreserveUnknownFields: ptr.To(true),
			}},
			Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
		})
	}
	return crd
}

func (s *Server) change(ctx context.Context, kind Kind, edit func(*apiextensionsv1.CustomResourceDefinitionSpec)) error {
	crd := kind.crd()
	if err := s.Client.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return err
	}
	before := client.MergeFrom(crd.DeepCopy())
	edit(&crd.Spec)
	return s.Client.Patch(ctx, crd, before)
}
