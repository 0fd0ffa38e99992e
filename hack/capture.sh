#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Writes the discovery documents of both API servers of hack/envtest.sh into
# testdata/discovery, which discovery_test.go reads.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"
(($# == 0)) || wrong "$*"

cd "$root"
for server in latest legacy; do
	assets=$(hack/envtest.sh "$server")
	say "capturing the documents of the $server server"
	(cd hack/e2e && KUBEBUILDER_ASSETS=$assets go test -count=1 -run '^TestCapture$' . -capture "$root/testdata/discovery/$server")
done
