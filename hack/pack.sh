#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/pack.sh [-check]
#
# Writes fresh.txt: the files of the module fresh that hack/fork places in a controller-runtime
# tree, in one text. The root module embeds it, because go:embed takes no file of a nested module.
#
#   -check    only reports whether it is up to date
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"
[[ "$*" == '' || "$*" == -check ]] || wrong "$*"

pack() {
	local file
	echo 'The files of fresh/ that hack/fork places in a tree. Written by hack/pack.sh: do not edit.'
	for file in fresh/client*.go fresh/cache*.go; do
		if [[ $file == *_test.go ]]; then continue; fi
		printf -- '-- %s --\n' "${file#fresh/}"
		cat "$file"
	done
}

cd "$root"
if [[ "$*" == -check ]]; then
	pack | cmp -s - fresh.txt || die "fresh.txt is not what fresh/ has: run hack/pack.sh"
else
	pack >fresh.txt
fi
