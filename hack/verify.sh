#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/verify.sh [-fast | -root]
#
# Checks everything about the checkout that needs no test run: formatting, vet,
# go.mod and go.sum, lint, script syntax, paths of this machine left in files.
# Files not yet added to git are checked too. A failed check does not stop the
# others; the exit status is 1 if any failed. It is a test, hack/dev/verify.
#
#   -fast    without golangci-lint, which the first run builds in a few minutes
#   -root    with golangci-lint for the root module alone, as hack/test.sh has it
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"

case "$*" in
'') lint=all ;;
-fast) lint=none ;;
-root) lint=root ;;
*) wrong "$*" ;;
esac
exec go -C "$root" test -count=1 -timeout 60m -v -run '^TestCheckout$' ./hack/dev/verify -args -modules "-lint=$lint"
