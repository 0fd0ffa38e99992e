// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// Users write these on an object that is to be mirrored, and the program on its copies.
// There is a label because the server can select objects by label, but not by annotation.
const (
	markLabel    = "lazywatch.example.com/mirror" // markSource, or markCopy
	markSource   = "source"
	markCopy     = "copy"
	toAnnotation = "lazywatch.example.com/to"   // of a source: namespaces, with commas between
	ofAnnotation = "lazywatch.example.com/from" // of a copy: its source's namespace/name

	fieldOwner = client.FieldOwner("lazywatch")
)

// reconciler mirrors the marked objects of one kind.
type reconciler struct {
	gvk        schema.GroupVersionKind
	copies     client.Reader // metadata of marked objects
	client     client.Client // for whole objects, past any cache
	events     events.EventRecorder
	maxTargets int
}

// sourceOf maps a marked object to the object to reconcile: a copy to its source.
func sourceOf(_ context.Context, o client.Object) []reconcile.Request {
	key := client.ObjectKeyFromObject(o)
	if o.GetLabels()[markLabel] == markCopy {
		namespace, name, ok := strings.Cut(o.GetAnnotations()[ofAnnotation], "/")
		if !ok {
			return nil // somebody else's object
		}
		key = client.ObjectKey{Namespace: namespace, Name: name}
	}
	return []reconcile.Request{{NamespacedName: key}}
}

// Reconcile makes the copies of an object what they should be. A target that
// fails does not keep the others waiting.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(r.gvk)
	err := r.client.Get(ctx, req.NamespacedName, object)
	if client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	var targets []string
	if err == nil && object.GetLabels()[markLabel] == markSource {
		targets = r.targets(object)
	}
	errs := []error{r.prune(ctx, req.NamespacedName, targets)}
	for _, namespace := range targets {
		if err := r.apply(ctx, object, namespace); err != nil {
			r.events.Eventf(
				object,
				nil,
				corev1.EventTypeWarning,
				"MirrorFailed",
				"Mirror",
				"into namespace %s: %v",
				namespace,
				err,
			)
			errs = append(errs, fmt.Errorf("into namespace %s: %w", namespace, err))
		}
	}
	return ctrl.Result{}, errors.Join(errs...)
}

// targets are the namespaces that the source names, but no more than it may name.
func (r *reconciler) targets(source *unstructured.Unstructured) []string {
	var targets []string
	for namespace := range strings.SplitSeq(source.GetAnnotations()[toAnnotation], ",") {
		namespace = strings.TrimSpace(namespace)
		if namespace != "" && namespace != source.GetNamespace() && !slices.Contains(targets, namespace) {
			targets = append(targets, namespace)
		}
	}
	if len(targets) <= r.maxTargets {
		return targets
	}
	r.events.Eventf(
		source,
		nil,
		corev1.EventTypeWarning,
		"TooManyTargets",
		"Mirror",
		"%d namespaces are more than -max-targets=%d, left out: %s",
		len(targets),
		r.maxTargets,
		strings.Join(targets[r.maxTargets:], ", "),
	)
	return targets[:r.maxTargets]
}

// prune deletes the source's copies in all namespaces but the targets.
func (r *reconciler) prune(ctx context.Context, source types.NamespacedName, targets []string) error {
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(r.gvk.GroupVersion().WithKind(r.gvk.Kind + "List"))
	if err := r.copies.List(ctx, list, client.MatchingLabels{markLabel: markCopy}); err != nil {
		return err
	}
	var errs []error
	for i := range list.Items {
		if object := &list.Items[i]; isCopyOf(object, source) && !slices.Contains(targets, object.Namespace) {
			errs = append(errs, client.IgnoreNotFound(r.client.Delete(ctx, object)))
		}
	}
	return errors.Join(errs...)
}

// apply writes the copy, unless an object of that name exists that is no copy of this
// source.
func (r *reconciler) apply(ctx context.Context, source *unstructured.Unstructured, namespace string) error {
	have := &unstructured.Unstructured{}
	have.SetGroupVersionKind(r.gvk)
	err := r.client.Get(ctx, client.ObjectKey{Namespace: namespace, Name: source.GetName()}, have)
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return err
	case !isCopyOf(have, client.ObjectKeyFromObject(source)):
		return errors.New("an object of that name is there, and is not a copy of this one")
	}
	return r.client.Apply(
		ctx,
		client.ApplyConfigurationFromUnstructured(copyOf(source, namespace)),
		fieldOwner,
		client.ForceOwnership,
	)
}

func isCopyOf(o client.Object, source types.NamespacedName) bool {
	return o.GetName() == source.Name && o.GetLabels()[markLabel] == markCopy &&
		o.GetAnnotations()[ofAnnotation] == source.String()
}

// copyOf returns a copy of the source without its status and most of its metadata, which
// belong to the source alone.
func copyOf(source *unstructured.Unstructured, namespace string) *unstructured.Unstructured {
	object := source.DeepCopy()
	delete(object.Object, "status")
	delete(object.Object, "metadata")
	object.SetNamespace(namespace)
	object.SetName(source.GetName())

	labels := maps.Clone(source.GetLabels())
	labels[markLabel] = markCopy // a source has labels
	object.SetLabels(labels)

	annotations := maps.Clone(source.GetAnnotations())
	delete(annotations, toAnnotation) // otherwise the copy would be mirrored, too
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	annotations[ofAnnotation] = client.ObjectKeyFromObject(source).String()
	object.SetAnnotations(annotations)
	return object
}
