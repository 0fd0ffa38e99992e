// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/freshmapper/freshmapper/internal/engine"
	"github.com/freshmapper/freshmapper/internal/follow"
)

// Internal packages know a mapper of ours by these two functions. They have no other effect.
func init() { //nolint:gochecknoinits // So the mapper exports nothing for them.
	engine.Of = func(mapper meta.RESTMapper) *engine.Engine {
		if m, ok := mapper.(*DynamicRESTMapper); ok && m != nil {
			return m.engine
		}
		return nil
	}
	follow.Door = func(mapper meta.RESTMapper) *follow.Followed {
		if m, ok := mapper.(*DynamicRESTMapper); ok && m != nil {
			return m.engine.Followed
		}
		return nil
	}
}
