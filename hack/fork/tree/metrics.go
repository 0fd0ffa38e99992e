// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"path"
)

// registerMetrics has the mapper's metrics registered with controller-runtime's
// registry. pkg/metrics does that when it is initialized, as it does for others'
// metrics, and leaves what counts in an internal package, where the mapper finds
// it. If the mapper imported pkg/metrics, then every program with a client would
// need Prometheus, and would have client-go's metrics registered by the way.
func registerMetrics(d *Draft) error {
	const seam = apiutilDir + "/defaults.go"
	if _, ok := d.Files[seam]; !ok {
		return fmt.Errorf("our sources have no %s, which is replaced here", path.Join("apiutil", path.Base(seam)))
	}
	delete(d.Files, seam)
	return d.change(nil, seam, "pkg/internal/mappermetrics/mappermetrics.go", "pkg/metrics/restmapper.go", apiutilDir+"/metrics_registry_test.go")
}
