// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kindList is a list of kinds, in any version. It is a flag.Value.
type kindList []schema.GroupKind

func (l kindList) String() string {
	var names []string
	for _, kind := range l {
		names = append(names, kind.String())
	}
	return strings.Join(names, ",")
}

// Set takes kinds as kubectl prints them: KIND.GROUP, or KIND of the core group.
func (l *kindList) Set(list string) error {
	*l = nil
	for name := range strings.SplitSeq(list, ",") {
		kind := schema.ParseGroupKind(strings.TrimSpace(name))
		if !strings.ContainsFunc(kind.Kind, unicode.IsUpper) {
			return fmt.Errorf("%q is no kind, want KIND.GROUP such as ConfigMap or Deployment.apps", name)
		}
		*l = append(*l, kind)
	}
	return nil
}

// served returns how the kinds are served, as far as the mapper knows.
func (l kindList) served(mapper meta.RESTMapper) map[string]string {
	served := map[string]string{}
	for _, kind := range l {
		mapping, err := mapper.RESTMapping(kind)
		switch {
		case meta.IsNoMatchError(err):
			served[kind.String()] = "not served"
		case err != nil:
			served[kind.String()] = "unknown: " + err.Error()
		default:
			served[kind.String()] = mapping.GroupVersionKind.GroupVersion().String() + ", " + string(mapping.Scope.Name())
		}
	}
	return served
}
