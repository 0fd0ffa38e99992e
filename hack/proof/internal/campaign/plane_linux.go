// SPDX-License-Identifier: Apache-2.0

package campaign

import (
	"os"

	"github.com/freshmapper/freshmapper/hack/control"
)

// Plane starts a control plane, which ends with the test.
func (c *Campaign) Plane(servers int) (*control.Plane, error) {
	c.Helper()
	if *out == "" && os.Getenv("KUBEBUILDER_ASSETS") == "" {
		c.Skip("KUBEBUILDER_ASSETS is not set")
	}
	assets, err := control.Assets()
	if err != nil {
		return nil, err
	}
	plane, err := control.Start(c.Ctx, assets, servers)
	if err != nil {
		return nil, err
	}
	c.Cleanup(func() {
		if err := plane.Stop(); err != nil {
			c.Error(err)
		}
	})
	return plane, nil
}
