#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/proof.sh [-quick] [-o DIR]
#
# Tests at length what DESIGN.md promises (hack/proof): real API servers that are killed,
# lose their gateway, disagree and are used for long, hostile servers, a herd of replicas,
# random histories, fuzzing, other people's operators. Writes a page for each.
# A campaign that fails does not stop the others.
#
#   -o DIR   where to write, default hack/proof/results
#   -quick   a few minutes in all, for a look; the default of -o is a temporary folder
#
# Without -quick it takes about three and a half hours, and longer for the operators, which are
# compiled three times.
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

replicas=500 kills=100 etcd=20 soak=30m hostile=10m histories=25000 lives=10000 fuzz=10m operators=Adopters page=$root/docs/third-party-tests.md packages=12 routes=50 disagree=3 gap=1m
if $quick; then
	out=${out:-$(mktemp -d)}
	replicas=200 kills=4 etcd=2 soak=1m hostile=30s histories=100 lives=100 fuzz=10s operators=Adopters/JobSet/tests page=$out/third-party-tests.md packages=2 routes=2 disagree=1 gap=5s
fi
out=${out:-$root/hack/proof/results}
mkdir -p "$out"
out=$(cd "$out" && pwd)
KUBEBUILDER_ASSETS=$("$root/hack/envtest.sh" latest)
export KUBEBUILDER_ASSETS
said=$(mktemp)
trap 'rm -f "$said"' EXIT
trap 'die interrupted' INT TERM # the campaign that runs ends by itself, and bash would begin the next
broken=()

campaign() {
	say "$*"
	go -C "$root/hack/proof" test -count=1 -v -timeout 0 -run "^Test$1\$" "${@:2}" || broken+=("$1")
}

# heading begins the page of tests that are in other folders, and shown adds a run of them: the lines that match, of
# those of progress the last.
heading() { # PAGE TITLE
	printf '# %s\n\nWritten by hack/proof.sh. [What it does](../README.md).\n\nMachine: %s cores, %s, %s, commit %s.\n' "$2" \
		"$(getconf _NPROCESSORS_ONLN)" "$(go env GOVERSION)" "$(date -u +%F)" "$(git -C "$root" rev-parse --short HEAD || true)" >"$out/$1.md"
}
shown() { # PAGE PATTERN FOLDER FLAGS...
	say "$*"
	go -C "$root/$3" test -count=1 "${@:4}" 2>&1 | tee "$said" >&2 ||
		if grep -q 'Failing input' "$said" || ! grep -q '^    context deadline exceeded$' "$said"; then # go.dev/issue/75804, before Go 1.27
			broken+=("$1")
		fi
	{
		printf '\n```\ngo test %s\n' "${*:4}"
		grep -E "$2|^FAIL|^--- FAIL|Failing input" "$said" | awk '/^fuzz: elapsed/ { last = $0; next } 1; END { if (last) print last }' ||
			broken+=("$1 printed nothing")
		echo '```'
	} >>"$out/$1.md"
}

heading herd 'A herd of replicas'
export FRESHMAPPER_HERD=$replicas
shown herd '^=== RUN .*/|requests a replica in|lookups, ' . -v -timeout=60m -run='^TestHerd$' ./apiutil
unset FRESHMAPPER_HERD
campaign Chaos . -args -o "$out" -kills "$kills" -etcd "$etcd"
campaign Gateway . -args -o "$out" -routes "$routes" -gap "$gap"
campaign Replicas . -args -o "$out" -routes "$disagree" -gap "$gap"
campaign Soak . -args -o "$out" -time "$soak" -mappers 50 -rate 5000
campaign Hostile . -args -o "$out" -time "$hostile"
heading histories 'Random histories'
for processors in 1 "$(getconf _NPROCESSORS_ONLN)"; do
	shown histories '^=== RUN .*/|[0-9] histories' hack/lincheck -v -timeout=12h -run='^TestHistories$' . -seed $RANDOM -histories "$histories" -processors "$processors"
done
shown histories '^ok' hack/e2e -timeout=12h -run='^TestRandomLivesOfAnOptionalKind$' github.com/freshmapper/freshmapper/fresh -args -lives "$lives"
heading fuzz Fuzzing
targets=''
while read -r word pkg _; do # the names of a package's targets, and then the package
	case $word in
	Fuzz*) targets+=" $word" ;;
	ok)
		for target in $targets; do
			shown fuzz "^fuzz: elapsed" . -run='^$' -fuzz="^$target\$" -fuzztime="$fuzz" -timeout=0 "$pkg"
		done
		targets=''
		;;
	esac
done < <(go -C "$root" test -list='^Fuzz' ./apiutil/... ./internal/...)
campaign "$operators" ./adopters -args -page "$page" -packages "$packages"
say "the pages are in $out"
((${#broken[@]} == 0)) || die "failed: ${broken[*]}"
