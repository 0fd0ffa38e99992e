#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/proof.sh [-quick] [-o DIR]
#
# Tests at length what DESIGN.md promises (hack/proof): chaos and soak on real API
# servers, hostile servers, a herd of replicas, random histories, fuzzing,
# other people's operators. Writes a page with tables and plots for each.
# A campaign that fails does not stop the others.
#
#   -o DIR   where to write, default hack/proof/results
#   -quick   a few minutes in all, for a look; the default of -o is a temporary folder
#
# Without -quick it takes about three hours, and longer for the operators, which are
# compiled twice.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"

quick=false out=''
while (($# > 0)); do
	case $1 in
	-quick) quick=true ;;
	-o)
		(($# > 1)) || wrong "-o without a folder"
		out=$2
		shift
		;;
	*) wrong "$1" ;;
	esac
	shift
done

chaos=(-kills 100 -etcd 20) soak=(-time 30m) hostile=(-time 10m) herd=(-replicas 500) histories=(-n 5000) fuzz=(-time 10m)
adopters=()
if $quick; then
	chaos=(-kills 4 -etcd 2) soak=(-time 1m) hostile=(-time 30s) herd=(-replicas 200) histories=(-n 100) fuzz=(-time 10s)
	out=${out:-$(mktemp -d)}
	adopters=(-test.run TestOwnTests/JobSet -packages 2 -page "$out/adopters.md")
fi
out=${out:-$root/hack/proof/results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
KUBEBUILDER_ASSETS=$("$root/hack/envtest.sh" latest)
export KUBEBUILDER_ASSETS

cd "$root/hack/proof"
trap 'die interrupted' INT TERM # the campaign that runs ends by itself, and bash would begin the next
broken=()
campaign() {
	say "$*"
	go test -count=1 -v -timeout 0 "./$1" -args -o "$out" "${@:2}" || broken+=("$1")
}
campaign herd "${herd[@]}"
campaign chaos "${chaos[@]}"
campaign soak "${soak[@]}"
campaign hostile "${hostile[@]}"
campaign histories "${histories[@]}"
campaign fuzz "${fuzz[@]}"
campaign adopters ${adopters[@]+"${adopters[@]}"}
say "the pages are in $out"
((${#broken[@]} == 0)) || die "failed: ${broken[*]}"
