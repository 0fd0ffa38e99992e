#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Tries both ways in with every line, the oldest Go and the newest; see hack/compatibility.sh -h.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev compatibility "$@"
