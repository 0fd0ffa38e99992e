#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/proof.sh [-quick] [-o DIR]
#
# Tests at length what DESIGN.md promises (hack/proof): chaos and soak on real API
# servers, hostile servers, a herd of replicas, random histories, fuzzing,
# other people's operators. Writes a page with tables for each.
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

replicas=500 kills=100 etcd=20 soak=30m hostile=10m histories=5000 fuzz=10m operators=Adopters page=$root/docs/adopters.md packages=12
if $quick; then
	out=${out:-$(mktemp -d)}
	replicas=200 kills=4 etcd=2 soak=1m hostile=30s histories=100 fuzz=10s operators=Adopters/JobSet/tests page=$out/adopters.md packages=2
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
	go test -count=1 -v -timeout 0 -run "^Test$1" "${@:2}" || broken+=("$1")
}
campaign Herd . -args -o "$out" -replicas "$replicas"
campaign Chaos . -args -o "$out" -kills "$kills" -etcd "$etcd"
campaign Soak . -args -o "$out" -time "$soak" -mappers 50 -rate 5000
campaign Hostile . -args -o "$out" -time "$hostile"
campaign Histories . -args -o "$out" -n "$histories"
campaign Fuzz . -args -o "$out" -time "$fuzz"
campaign "$operators" ./adopters -args -page "$page" -packages "$packages"
say "the pages are in $out"
((${#broken[@]} == 0)) || die "failed: ${broken[*]}"
