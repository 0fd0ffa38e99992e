// SPDX-License-Identifier: Apache-2.0

package runner

import (
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/envtest"
)

// InstallFile creates the CRDs in a file, or updates them, and waits until the
// server serves them.
func (s *Server) InstallFile(name string) error {
	_, err := envtest.InstallCRDs(s.env.Config, envtest.CRDInstallOptions{Paths: []string{name}, ErrorIfPathMissing: true})
	if err != nil {
		return fmt.Errorf("failed to install %s: %w", name, err)
	}
	return nil
}
