// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"context"
	"encoding/json"
	"fmt"
	"path"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// Make creates an object of the kind, for the operator of a class, in the kind's
// first version, as soon as the server lets it. No mapper is asked for the path.
func (s *Server) Make(ctx context.Context, kind Kind, name, class string) error {
	gv := kind.gv(kind.Versions[0])
	where := path.Join("/apis", gv.String())
	metadata := map[string]any{"name": name}
	if !kind.Cluster {
		where, metadata["namespace"] = path.Join(where, "namespaces/default"), "default"
	}
	body, err := json.Marshal(map[string]any{
		"apiVersion": gv.String(), "kind": kind.Kind, "metadata": metadata, "spec": map[string]any{"size": 1, "class": class},
	})
	if err != nil {
		return err
	}
	return s.Await(ctx, fmt.Sprintf("%s %q to be made", kind.Kind, name), func() (bool, error) {
		err := s.discovery.RESTClient().Post().AbsPath(path.Join(where, kind.resource())).
			SetHeader("Content-Type", "application/json").Body(body).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
}
