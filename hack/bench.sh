#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures our mapper beside controller-runtime's and client-go's; see hack/bench.sh -h.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev bench "$@"
