#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks everything about the checkout that needs no test run; see hack/verify.sh -h.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
dev verify "$@"
