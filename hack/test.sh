#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs the tests; see hack/test.sh -h.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev test "$@"
