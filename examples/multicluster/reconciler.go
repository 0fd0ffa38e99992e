// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/retry"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
)

// request asks for one tenant of one mesh. A request for a whole mesh would be simpler.
// But then a tenant that hangs would hold up all others of the mesh, and if one failed,
// all would wait for its backoff.
type request struct {
	Mesh   types.NamespacedName
	Tenant string
}

// reconciler pushes a Peer into a tenant, again and again.
type reconciler struct {
	client   client.Client
	live     client.Reader // reads the hosting cluster itself, not a cache
	tenants  *tenants
	peer     schema.GroupKind
	interval time.Duration
	retry    time.Duration
}

func (r *reconciler) setup(mgr ctrl.Manager, workers int) error {
	return builder.TypedControllerManagedBy[request](mgr).
		Named("tenant").
		// Only the spec counts, so that writing to the status starts no new reconcile.
		Watches(newObject(), handler.TypedEnqueueRequestsFromMapFunc(requests),
			builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		WithOptions(controller.TypedOptions[request]{MaxConcurrentReconciles: workers}).
		WithLogConstructor(logger(mgr.GetLogger())).
		Complete(r)
}

// requests returns a request for each tenant in the spec, and for each that the status
// still has. When a mesh changes, it is called with the old mesh and with the new one, so
// there is also a request for a tenant that was removed.
func requests(ctx context.Context, object client.Object) []request {
	mesh, err := decode(object.(*unstructured.Unstructured))
	if err != nil {
		ctrl.LoggerFrom(ctx).Error(err, "ClusterMesh ignored")
		return nil
	}
	names := mesh.tenantNames()
	for _, t := range mesh.Status.Tenants {
		names = append(names, t.Name)
	}
	all := make([]request, 0, len(names))
	for _, name := range names { // the queue makes one request of two that are equal
		all = append(all, request{client.ObjectKeyFromObject(object), name})
	}
	return all
}

func logger(log logr.Logger) func(*request) logr.Logger {
	return func(req *request) logr.Logger {
		if req == nil {
			return log
		}
		return log.WithValues("mesh", req.Mesh, "tenant", req.Tenant)
	}
}

// Reconcile pushes the Peer of one tenant and records the outcome. The queue never
// reconciles a tenant twice at the same time.
func (r *reconciler) Reconcile(ctx context.Context, req request) (ctrl.Result, error) {
	object := newObject()
	if err := r.client.Get(ctx, req.Mesh, object); client.IgnoreNotFound(err) != nil {
		return ctrl.Result{}, err
	}
	mesh, err := decode(object) // empty if there is none
	if err != nil {
		return ctrl.Result{}, err
	}
	tenant, ok := mesh.tenant(req.Tenant)
	if !ok {
		r.tenants.forget(req)
		return ctrl.Result{}, r.record(ctx, req, "", metav1.Condition{})
	}
	version, err := r.push(ctx, req, mesh, tenant)
	if recordErr := r.record(ctx, req, version, condition(err)); recordErr != nil {
		return ctrl.Result{}, errors.Join(err, recordErr)
	}
	if why := (*incomplete)(nil); errors.As(err, &why) {
		// This is no failure: the tenant is not fully installed yet. With a backoff, the
		// wait would grow the later that happens.
		ctrl.LoggerFrom(ctx).Info("the tenant cannot have its Peer yet", "reason", why.reason, "error", why.Error())
		return ctrl.Result{RequeueAfter: r.retry}, nil
	}
	return ctrl.Result{RequeueAfter: r.interval}, err
}

// condition returns the condition of a tenant after a push.
func condition(err error) metav1.Condition {
	if err == nil {
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: reasonPushed, Message: "the Peer is up to date"}
	}
	failed := metav1.Condition{Status: metav1.ConditionFalse, Reason: reasonFailed, Message: err.Error()}
	if why := (*incomplete)(nil); errors.As(err, &why) {
		failed.Reason = why.reason
	}
	return failed
}

// manyWriters is the backoff of a worker if many workers write the same status.
var manyWriters = wait.Backoff{Steps: 10, Duration: 10 * time.Millisecond, Factor: 1.5, Jitter: 1}

// record writes the state of a tenant into the status of its mesh, and whether all
// tenants are ready. Other workers write to the same status: each bases its change on the
// latest one, and tries again if another was faster.
func (r *reconciler) record(ctx context.Context, req request, peerVersion string, ready metav1.Condition) error {
	return retry.RetryOnConflict(manyWriters, func() error {
		object := newObject()
		if err := r.live.Get(ctx, req.Mesh, object); err != nil {
			return client.IgnoreNotFound(err) // if it was deleted meanwhile, there is nothing to do
		}
		mesh, err := decode(object)
		if err != nil {
			return err
		}
		before := object.DeepCopy()
		mesh.record(req.Tenant, peerVersion, ready)
		if err := mesh.encodeStatus(object); err != nil {
			return err
		}
		if equality.Semantic.DeepEqual(before, object) {
			return nil
		}
		patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
		return client.IgnoreNotFound(r.client.Status().Patch(ctx, object, patch))
	})
}
