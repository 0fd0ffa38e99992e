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

// absent are objects that do not exist, each in a group of its own.
var absent = []client.Object{&corev1.ConfigMap{}, &appsv1.Deployment{}, &batchv1.Job{}, &rbacv1.Role{}}

// miss gets what does not exist, evenly over a time, as a controller does that
// looks for an optional object with each reconcile.
func miss(ctx context.Context, gets int, over time.Duration) error {
	cfg, httpClient, mapper, err := connect()
	if err != nil {
		return err
	}
	c, err := client.New(cfg, client.Options{HTTPClient: httpClient, Mapper: mapper})
	if err != nil {
		return err
	}
	for _, obj := range absent { // what is read at first is not what is to be counted
		if _, err := c.IsObjectNamespaced(obj); err != nil {
			return err
		}
	}
	fmt.Println("ready")
	if _, err := fmt.Scanln(); err != nil && err.Error() != "unexpected newline" { // the line that says go
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
