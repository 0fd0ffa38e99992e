#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows at length what DESIGN.md promises (hack/proof): chaos and soak on real API
# servers, hostile servers, a herd of replicas, fuzzing. Writes pages with tables
# and plots. See usage below.
#
# A proof that fails does not stop the others.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'END'
usage: hack/proof.sh [-quick] [-o DIR]

  -o DIR   where to write, default hack/proof/results
  -quick   a few minutes in all, for a look; the default of -o is a temporary folder

Without -quick it takes about two hours.
END
}

quick=false out=''
while (($# > 0)); do
	case $1 in
	-quick) quick=true ;;
	-o)
		(($# > 1)) || die "-o needs a value"
		out=$2
		shift
		;;
	-h | --help)
		usage
		exit
		;;
	*)
		usage >&2
		exit 2
		;;
	esac
	shift
done

chaos=(-kills 100 -etcd 20) soak=(-time 30m) hostile=(-time 10m) herd=(-replicas 500) fuzz=(-time 10m)
if $quick; then
	chaos=(-kills 4 -etcd 2) soak=(-time 1m) hostile=(-time 30s) herd=(-replicas 200) fuzz=(-time 10s)
	out=${out:-$(mktemp -d)}
fi
out=${out:-$root/hack/proof/results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
KUBEBUILDER_ASSETS=$("$root/hack/envtest.sh" latest)
export KUBEBUILDER_ASSETS

cd "$root/hack/proof"
broken=()
prove() {
	say "$*"
	go run "./$1" -o "$out" "${@:2}" || broken+=("$1")
}
prove herd "${herd[@]}"
prove chaos "${chaos[@]}"
prove soak "${soak[@]}"
prove hostile "${hostile[@]}"
prove fuzz "${fuzz[@]}"
say "the pages are in $out"
((${#broken[@]} == 0)) || die "failed: ${broken[*]}"
