// SPDX-License-Identifier: Apache-2.0

// Command unmanaged works with kinds through its own mapper, and without a manager that
// would start anything.
//
//	unmanaged serve -kind Widget.v1.example.com -class NAME   marks objects, with a dynamic client
//	unmanaged miss -gets N -over D                            gets objects that do not exist
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	"example.com/consumers/frame"
)

func main() { frame.Main("unmanaged", run) }

type options struct {
	kind, class string
	gets        int
	over        time.Duration
}

func (o *options) addTo(flags *flag.FlagSet) {
	flags.StringVar(&o.kind, "kind", "", "serve this kind: Kind.version.group")
	flags.StringVar(&o.class, "class", "", "mark the objects whose spec.class is this")
	flags.IntVar(&o.gets, "gets", 10000, "get so many objects that do not exist")
	flags.DurationVar(&o.over, "over", time.Minute, "take so long for them")
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errors.New("usage: unmanaged serve|miss [flags]")
	}
	var opts options
	if err := frame.Parse("unmanaged "+args[0], args[1:], opts.addTo); err != nil {
		return err
	}
	switch args[0] {
	case "serve":
		return serve(ctx, opts.kind, opts.class)
	case "miss":
		return miss(ctx, opts.gets, opts.over)
	}
	return fmt.Errorf("unknown command %q", args[0])
}

// connect returns what both commands need.
func connect() (*rest.Config, *http.Client, meta.RESTMapper, error) {
	cfg, err := ctrl.GetConfig()
	if err != nil {
		return nil, nil, nil, err
	}
	cfg.QPS = -1
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, nil, nil, err
	}
	mapper, err := apiutil.NewDynamicRESTMapper(cfg, httpClient)
	return cfg, httpClient, mapper, err
}

// absent are objects that do not exist, each in another group.
var absent = []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}, &batchv1.Job{}, &rbacv1.Role{}}

// miss gets objects that do not exist, evenly over a time. A controller does so if it
// looks for an optional object in each reconcile.
func miss(ctx context.Context, gets int, over time.Duration) error {
	cfg, httpClient, mapper, err := connect()
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{HTTPClient: httpClient, Mapper: mapper})
	if err != nil {
		return err
	}
	for _, obj := range absent { // the first reads are not to be counted
		if _, err := c.IsObjectNamespaced(obj); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if _, err := fmt.Scanln(); err != nil && err.Error() != "unexpected newline" { // wait for a line
		return err
	}
	begun := time.Now()
	for i := range gets {
		obj := absent[i%len(absent)].DeepCopyObject().(client.Object)
		key := client.ObjectKey{Namespace: "default", Name: fmt.Sprintf("absent-%d", i)}
		if err := c.Get(ctx, key, obj); !apierrors.IsNotFound(err) {
			return fmt.Errorf("get %v: %w", key, err)
		}
		select {
		case <-time.After(time.Until(begun.Add(over * time.Duration(i+1) / time.Duration(gets)))):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	fmt.Println("done")
	return nil
}

// server marks the objects of a kind. It asks the mapper for the kind each time, because
// the mapper knows how the kind is served now.
type server struct {
	client dynamic.Interface
	mapper meta.RESTMapper
	gvk    schema.GroupVersionKind
	class  string
	marked map[types.UID]bool
}

func serve(ctx context.Context, kind, class string) error {
	gvk, _ := schema.ParseKindArg(kind)
	if gvk == nil {
		return fmt.Errorf("-kind must be Kind.version.group, not %q", kind)
	}
	cfg, httpClient, mapper, err := connect()
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return err
	}
	s := &server{client: client, mapper: mapper, gvk: *gvk, class: class, marked: map[types.UID]bool{}}
	for ctx.Err() == nil {
		if err := s.markAll(ctx); err != nil && ctx.Err() == nil {
			ctrl.Log.Error(err, "Failed to mark objects")
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
	return nil
}

func (s *server) markAll(ctx context.Context) error {
	mapping, err := s.mapper.RESTMapping(s.gvk.GroupKind(), s.gvk.Version)
	if err != nil {
		return err
	}
	resource := dynamic.ResourceInterface(s.client.Resource(mapping.Resource))
	if mapping.Scope.Name() == meta.RESTScopeNameNamespace {
		resource = s.client.Resource(mapping.Resource).Namespace(metav1.NamespaceDefault)
	}
	list, err := resource.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := s.mark(ctx, resource, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (s *server) mark(ctx context.Context, resource dynamic.ResourceInterface, obj *unstructured.Unstructured) error {
	class, _, _ := unstructured.NestedString(obj.Object, "spec", "class")
	if class != s.class || s.marked[obj.GetUID()] {
		return nil
	}
	patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"unmanaged.example.com/%s":"marked"}}}`, s.class)
	if _, err := resource.Patch(ctx, obj.GetName(), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return err
	}
	s.marked[obj.GetUID()] = true
	ctrl.Log.Info("Reconciled", "name", obj.GetName())
	return nil
}
