// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
)

// The interfaces that are younger than the oldest apimachinery, which the root
// module requires, are asserted here, where the newest is.
var (
	_ meta.RESTMapperWithContext           = (*apiutil.DynamicRESTMapper)(nil)
	_ meta.ResettableRESTMapper            = (*apiutil.DynamicRESTMapper)(nil)
	_ meta.ResettableRESTMapperWithContext = (*apiutil.DynamicRESTMapper)(nil)
)
