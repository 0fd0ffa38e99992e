#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures our mapper beside controller-runtime's and client-go's. See usage below.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'END'
usage: hack/bench.sh [-quick] [-count N] [-o DIR] [-before FILE]

Measures this project's mapper beside controller-runtime's and client-go's on
an API server in memory (hack/bench), and writes a page with tables, the
figures to reach, plots, and benchstat's view.

  -count N      rounds, default 8; about 2 minutes each on two quiet cores, the first some more
  -o DIR        where to write, default hack/bench/results
  -before FILE  raw.txt of an earlier run, to compare ours with what it was then
  -quick        one short round, for a look; the default of -o is a temporary folder
END
}

wrong() {
	echo "error: $*" >&2
	usage >&2
	exit 2
}

quick=false count='' out='' before=''
while (($# > 0)); do
	case $1 in
	-quick) quick=true ;;
	-h | --help)
		usage
		exit
		;;
	-count | -o | -before)
		(($# > 1)) || wrong "$1 needs a value"
		case $1 in
		-count) count=$2 ;;
		-o) out=$2 ;;
		-before) before=$2 ;;
		esac
		shift
		;;
	-*=*)
		set -- "${1%%=*}" "${1#*=}" "${@:2}"
		continue
		;;
	*) wrong "unexpected $1" ;;
	esac
	shift
done
if $quick; then count=${count:-1} out=${out:-$(mktemp -d)}; fi
count=${count:-8} out=${out:-$root/hack/bench/results}
[[ $count =~ ^[1-9][0-9]*$ ]] || wrong "-count must be a positive number, not $count"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
if [[ -n $before ]]; then # a copy: this run may replace it
	cp "$before" "$work/before.txt" || die "-before needs the raw.txt of an earlier run"
fi
mkdir -p "$out"
out=$(cd "$out" && pwd)

cd "$root/hack/bench"
say "building the benchmarks"
go test -c -o "$work/bench.test" .
go build -o "$work/report" ./report

# family runs benchmarks in a process of its own: the pattern of their names, the
# processors, the run time of each with -quick and without. Of what each process says
# it keeps the results, and which processor this is. client-go logs what hangs.
cpu=''
family() {
	local time=$4
	if $quick; then time=$3; fi
	"$work/bench.test" -test.run '^$' -test.bench "^Benchmark($1)\$" -test.cpu "$2" -test.benchtime "$time" -test.timeout 30m \
		>"$work/said" 2>"$work/logged" || {
		cat "$work/said" "$work/logged" >&2
		die "the benchmarks of $1 failed"
	}
	grep '^Benchmark' "$work/said" >>"$work/results"
	cpu=$(grep '^cpu: ' "$work/said" || true)
}

# A round runs every family once, the mappers next to each other, so that what else
# the machine does falls on all of them alike. hack/bench/doc.go says what the
# families are.
begun=$SECONDS
for ((round = 1; round <= count; round++)); do
	at() { say "round $round of $count, $(date +%T): $*"; }
	at "hits"
	family Hit 1 10ms 40ms
	family HitParallel 2 10ms 40ms
	at "discovery"
	family 'Publish|Cold|Miss|Refresh' 2 20ms 100ms
	at "heap, many mappers, storms, latency, groups that hang"
	family OnceHeap 2 1x 1x
	family 'OnceFleet|OnceStorm' 2 1x 1x
	family OnceLatency 2 1x 1x
	family 'OnceApart|OnceBeside|OnceReset' 2 1x 1x
	if ((round == 1)); then
		at "fleets, which take a few minutes, once"
		family 'OnceClusters|OnceReconciles' 2 1x 1x
	fi
done

say "writing $out"
version() { go list -m -f '{{.Version}}' "$1"; }
{ # configuration lines of the Go benchmark format, and the results
	echo "date: $(date -u +%F)"
	echo "go: $(go env GOVERSION)"
	echo "goos: $(go env GOOS)"
	echo "goarch: $(go env GOARCH)"
	[[ -z $cpu ]] || echo "$cpu"
	echo "cores: $(getconf _NPROCESSORS_ONLN)"
	echo "controller-runtime: $(version sigs.k8s.io/controller-runtime)"
	echo "client-go: $(version k8s.io/client-go)"
	echo
	cat "$work/results"
} >"$out/raw.txt"
# "raw.txt=" is what benchstat calls it, else the path is in its tables.
benchstat() { go tool -modfile="$root/hack/tools/go.mod" benchstat "$@" "raw.txt=$out/raw.txt"; }
{
	benchstat -col '/mapper@(stock deferred ours)'
	benchstat -filter '/mapper:floor OR .name:Publish'
} >"$out/benchstat.txt"
"$work/report" "$out" ${before:+"$work/before.txt"}
say "done in $((SECONDS - begun)) seconds"
