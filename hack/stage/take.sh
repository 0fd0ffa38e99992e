#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Takes over patches that were changed in a checkout of controller-runtime.
#
#	hack/stage/take.sh CHECKOUT BASE BRANCH...
#
# Each BRANCH has a patch on top of BASE, a commit or a tag. Writes these patches to
# hack/stage/series, without upstream's lines, and the digests of the files that they change.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"
offer_help "$@"
(($# > 2)) || wrong "$*"
checkout=$1 base=$2 n=0 series=$root/hack/stage/series
shift 2
license=$(($(git -C "$checkout" show "$base:hack/boilerplate/boilerplate.go.txt" | wc -l) + 1))
rm -f "$series"/*.patch
for branch; do
	n=$((n + 1))
	git -C "$checkout" diff -U0 --no-renames "$base" "$branch" | awk -v license="$license" '
		/^--- / { skip = $2 == "/dev/null" ? license : 0 }
		/^\+\+\+ b\// { print "+++ " substr($0, 7); next }
		/^@@/ { n = split(substr($2, 2), old, ",") < 2 ? 1 : old[2]; print "@@", old[1] - (n > 0), n }
		/^\+/ { if (skip > 0) skip--; else print }' >"$series/$n.patch"
	git -C "$checkout" diff --name-only --diff-filter=M "$base" "$branch"
done | sort -u | while read -r file; do
	printf '%s  %s\n' "$(git -C "$checkout" show "$base:$file" | sha256sum | cut -d' ' -f1)" "$file"
done >"$series/base.sha256"
