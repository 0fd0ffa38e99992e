// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/apiutil"
)

// Some interfaces are newer than the oldest apimachinery, which the root module
// requires. They are asserted here, because this module requires the newest.
var (
	_ meta.RESTMapperWithContext           = (*apiutil.DynamicRESTMapper)(nil)
	_ meta.ResettableRESTMapper            = (*apiutil.DynamicRESTMapper)(nil)
	_ meta.ResettableRESTMapperWithContext = (*apiutil.DynamicRESTMapper)(nil)
)
