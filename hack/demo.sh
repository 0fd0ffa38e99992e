#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows the main job in one command; see hack/demo.sh -h.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev demo "$@"
