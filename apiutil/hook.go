// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/follow"
)

// Internal packages know a mapper of ours by this function. It has no other effect.
func init() { //nolint:gochecknoinits // So the mapper exports nothing for them.
	follow.FollowedOf = func(mapper meta.RESTMapper) *follow.Followed {
		if m, ok := mapper.(*DynamicRESTMapper); ok && m != nil {
			return m.engine.Followed
		}
		return nil
	}
}
