#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Compares upstream's own tests on stock and fork of every line; see hack/matrix.sh -h.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev matrix "$@"
