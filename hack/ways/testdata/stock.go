// SPDX-License-Identifier: Apache-2.0

package main

import (
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

var provider = apiutil.NewDynamicRESTMapper

func more(ctrl.Manager) error { return nil }
