// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// Internal packages get at what is inside a mapper by this function, so the mapper exports nothing for them. init has
// no other effect.
func init() { //nolint:gochecknoinits // See above.
	follow.FollowedOf = func(mapper meta.RESTMapper) *follow.Followed {
		if m, ok := mapper.(*DynamicRESTMapper); ok && m != nil {
			return m.engine.Followed
		}
		return nil
	}
}
