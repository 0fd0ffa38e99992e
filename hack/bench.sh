#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Measures this project's mapper beside controller-runtime's and client-go's on
# an API server in memory (hack/bench), and writes a page with tables, the
# figures to reach, plots, and benchstat's view. See usage below.
#
# A round runs every benchmark once, the mappers next to each other, so that
# what else the machine does falls on all of them alike.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'END'
usage: hack/bench.sh [-quick] [-count N] [-o DIR] [-before FILE]

  -count N      rounds, default 8; about 2 minutes each on two quiet cores, the first some more
  -o DIR        where to write, default hack/bench/results
  -before FILE  raw.txt of an earlier run, to compare ours with what it was then
  -quick        one short round, for a look; the default of -o is a temporary folder
END
}

count='' out='' before='' quick=false
while (($# > 0)); do
	case $1 in
	-quick) quick=true ;;
	-count | -o | -before)
		(($# > 1)) || die "$1 needs a value"
		case $1 in
		-count) count=$2 ;;
		-o) out=$2 ;;
		-before) before=$2 ;;
		esac
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

# Run times of the three families of benchmarks; see hack/bench/doc.go.
hit_time=40ms discovery_time=100ms
if $quick; then
	hit_time=10ms discovery_time=20ms count=${count:-1} out=${out:-$(mktemp -d)}
fi
count=${count:-8} out=${out:-$root/hack/bench/results}
[[ $count =~ ^[1-9][0-9]*$ ]] || die "-count needs a number: '$count'"
mkdir -p "$out"
out=$(cd "$out" && pwd)

scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
if [[ $before ]]; then # it may be what this run replaces
	cp "$before" "$scratch/before.txt" || die "-before needs the raw.txt of an earlier run: $before"
fi
raw=$scratch/raw.txt

# run FAMILY TIME PROCESSORS runs benchmarks in a process of their own and adds
# their output to raw. The header of each process is in raw once already.
run() {
	"$scratch/bench.test" -test.run '^$' -test.bench "^Benchmark($1)\$" -test.benchtime "$2" -test.cpu "$3" \
		-test.timeout 30m >"$scratch/log" 2>"$scratch/errors" || { # client-go logs what hangs there
		cat "$scratch/log" "$scratch/errors" >&2
		die "the benchmarks of $1 failed"
	}
	grep '^cpu: ' "$scratch/log" >"$scratch/cpu" || true
	grep '^Benchmark' "$scratch/log" >>"$raw"
}

# header prints what was measured where, as configuration lines of the Go
# benchmark format.
header() {
	echo "date: $(date -u +%Y-%m-%d)"
	echo "go: $(go -C "$root/hack/bench" env GOVERSION)"
	echo "goos: $(go env GOOS)"
	echo "goarch: $(go env GOARCH)"
	cat "$scratch/cpu"
	echo "cores: $(getconf _NPROCESSORS_ONLN)"
	echo "controller-runtime: $(version_of sigs.k8s.io/controller-runtime)"
	echo "client-go: $(version_of k8s.io/client-go)"
	echo
}

version_of() { go -C "$root/hack/bench" list -m -f '{{.Version}}' "$1"; }

say "building the benchmarks"
go -C "$root/hack/bench" test -c -o "$scratch/bench.test" .
go -C "$root/hack/bench" build -o "$scratch/report" ./report
: >"$raw"
for ((round = 1; round <= count; round++)); do
	say "round $round of $count, started at $(date +%H:%M:%S): hits"
	run Hit "$hit_time" 1
	run HitParallel "$hit_time" 2
	say "round $round of $count: discovery"
	run 'Publish|Cold|Miss|Refresh' "$discovery_time" 2
	say "round $round of $count: heap, many mappers, storms, latency, groups that hang"
	run OnceHeap 1x 2
	run 'OnceFleet|OnceStorm' 1x 2
	run OnceLatency 1x 2
	run 'OnceApart|OnceBeside|OnceReset' 1x 2
	if ((round == 1)); then
		say "round 1 of $count: fleets, which take a few minutes, once"
		run 'OnceClusters|OnceReconciles' 1x 2
	fi
done
{ header && cat "$raw"; } >"$out/raw.txt"

say "writing $out"
{ # "raw.txt=" is what benchstat calls it, else the path is in its tables
	cd "$root"
	tool benchstat -col '/mapper@(stock deferred ours)' "raw.txt=$out/raw.txt"
	tool benchstat -filter '/mapper:floor OR .name:Publish' "raw.txt=$out/raw.txt"
} >"$out/benchstat.txt" 2>"$scratch/log" || die "benchstat: $(cat "$scratch/log")"
"$scratch/report" "$out" ${before:+"$scratch/before.txt"}
say "done in $((SECONDS / 60)) min $((SECONDS % 60)) s"
