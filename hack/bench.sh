#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/bench.sh [-quick] [-count N] [-o DIR] [-before FILE]
#
# Measures this project's mapper beside controller-runtime's and client-go's on
# an API server in memory (hack/bench). It writes raw.txt, what benchstat makes of it,
# a plot, a page with the figures to reach, and one with the requests of an operator in an hour.
#
#   -count N      rounds, default 8; about 2 minutes each on two quiet cores, the first some more
#   -o DIR        where to write, default hack/bench/results
#   -before FILE  raw.txt of an earlier run; benchstat.txt then ends with a comparison of
#                 ours and the floor with what they were
#   -quick        one short round, for a look; the default of -o is a temporary folder
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"

quick=false count='' out='' before=''
while (($# > 0)); do
	case $1 in
	-quick) quick=true ;;
	-count | -o | -before)
		(($# > 1)) || wrong "$1 without a value"
		case $1 in -count) count=$2 ;; -o) out=$2 ;; -before) before=$2 ;; esac
		shift
		;;
	*) wrong "$1" ;;
	esac
	shift
done
[[ ${count:-1} =~ ^[1-9][0-9]*$ ]] || wrong "-count $count"
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
[[ -z $before ]] || cp "$before" "$work/before.txt" # this run may replace it
rounds=8 nanoseconds=40ms more=100ms follow='OnceGets|OnceKinds|OnceMove|OnceStart'
if $quick; then
	rounds=1 nanoseconds=10ms more=20ms out=${out:-$(mktemp -d)}
fi
rounds=${count:-$rounds} out=${out:-$root/hack/bench/results}
mkdir -p "$out"
out=$(cd "$out" && pwd)

# measure runs benchmarks in a process of their own: processors, time of each, names, built on stock or fork.
# client-go logs what hangs, which is shown if they fail.
measure() {
	say "round $round of $rounds, $(date +%T): $3${4:+ on the fork}"
	"$work/${4:-stock}" -test.run='^$' -test.bench="^Benchmark($3)\$" -test.cpu="$1" -test.benchtime="$2" -test.timeout=30m ${4:+-fork} >"$work/said" 2>"$work/log" ||
		die "$(cat "$work/said" "$work/log")"
	grep '^cpu: ' "$work/said" >"$work/cpu" || true
	grep '^Benchmark' "$work/said" >>"$work/results"
}

cd "$root/hack/bench"
go test -c -o "$work/stock" .
cp go.mod "$work/fork.mod" && cp go.sum "$work/fork.sum"
go -C "$root" run ./hack/fork -o "$work/tree" -version "$(go list -m -f '{{.Version}}' sigs.k8s.io/controller-runtime)"
go mod edit -replace="sigs.k8s.io/controller-runtime=$work/tree" \
	-replace="github.com/freshmapper/freshmapper=$root" -replace="github.com/freshmapper/freshmapper/fresh=$root/fresh" "$work/fork.mod"
go test -c -modfile="$work/fork.mod" -o "$work/fork" .
# A round runs all, the mappers next to each other, so that what else the machine does
# falls on all of them alike.
for ((round = 1; round <= rounds; round++)); do
	measure 1 "$nanoseconds" Hit
	measure 2 "$nanoseconds" HitParallel
	measure 2 "$more" 'Cold|Miss|Refresh'
	for names in OnceHeap 'OnceFleet|OnceStorm' OnceLatency OnceCRDs "$follow"; do
		measure 2 1x "$names"
	done
	measure 2 1x "$follow" fork
	((round == 1)) || continue # these take a few minutes
	measure 2 1x 'OnceClusters|OnceReplay'
	measure 2 1x OnceReplay fork
done

{
	echo "date: $(date -u +%F)"
	echo "commit: $(git rev-parse --short HEAD || true)"
	printf 'go: %s\ngoos: %s\ngoarch: %s\n' $(go env GOVERSION GOOS GOARCH) # three words
	echo "cores: $(getconf _NPROCESSORS_ONLN)"
	go list -m -f '{{.Path}}: {{.Version}}' sigs.k8s.io/controller-runtime k8s.io/client-go | sed 's,.*/,,'
	cat "$work/cpu"
	echo
	cat "$work/results"
} >"$out/raw.txt"
benchstat() { # what comes after NAME= is not in its tables
	go tool -modfile=../tools/go.mod benchstat "$@" "raw.txt=$out/raw.txt"
	echo
}
{
	benchstat -col '/mapper@(stock deferred ours fork)'
	benchstat -filter '/mapper:floor'
	[[ -z $before ]] || benchstat -ignore date,commit,go,goos,goarch,cpu,cores,controller-runtime,client-go \
		-filter '/mapper:(ours OR floor)' "before=$work/before.txt"
} >"$out/benchstat.txt"
go test -count=1 -run '^TestRequestsOfAnHour$' . -args -requests "$out/requests.md"
go test -count=1 -v -run '^TestPage$' . -args -raw "$out/raw.txt"
say "the results are in $out"
