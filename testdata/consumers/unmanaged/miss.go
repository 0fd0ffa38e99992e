// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

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
