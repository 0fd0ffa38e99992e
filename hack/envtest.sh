#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints a folder with an API server, ready to be KUBEBUILDER_ASSETS; see hack/envtest.sh -h
# for the arguments, and hack/envtest/README.md for where it comes from.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev envtest "$@"
