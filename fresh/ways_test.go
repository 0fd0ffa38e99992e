// SPDX-License-Identifier: Apache-2.0

package fresh_test

import "github.com/freshmapper/freshmapper/fresh"

// What the tests are about. A controller-runtime tree with this mapper inside has other names for it.
var (
	newClient, newWithWatch, newNamespaced = fresh.NewClient, fresh.NewWithWatch, fresh.NewNamespacedClient
	newCache                               = fresh.NewCache
)
