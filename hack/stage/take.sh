#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Takes over a series that was changed in a checkout of controller-runtime.
#
#	hack/stage/take.sh CHECKOUT BASE
#
# BASE is the commit or tag under the series. Writes each commit after it to
# hack/stage/series, without the lines of upstream's around it, and the digests of the
# files that the series changes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
offer_help "$@"
[[ $# -eq 2 ]] || wrong "$*"
series=$root/hack/stage/series
rm -f "$series"/*.patch
n=0
for commit in $(git -C "$1" rev-list --reverse "$2..HEAD"); do
	n=$((n + 1))
	{
		git -C "$1" log -1 --format=%B "$commit"
		git -C "$1" diff -U0 --no-renames "$commit~" "$commit" |
			sed -n -e 's|^+++ b/|+++ |p' -e t -e 's/^\(@@ .* @@\).*/\1/p' -e t -e '/^+/p'
	} >"$series/$n.patch"
done
git -C "$1" diff --name-only "$2" HEAD | while read -r file; do
	printf '%s  %s\n' "$(git -C "$1" show "$2:$file" | sha256sum | cut -d' ' -f1)" "$file"
done >"$series/base.sha256"
