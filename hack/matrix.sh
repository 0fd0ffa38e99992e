#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs upstream's own tests, unmodified, on stock and on forked controller-runtime
# trees of every supported line, and compares them test by test. hack/test.sh
# -matrix calls it. Prints a table; a run of everything writes it to
# hack/fork/MATRIX.md. See usage below for the arguments.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'END'
usage: hack/matrix.sh [-lines V,V...] [-packages P,P...] [-keep DIR]

  -lines     releases, v0.20.4,v0.25.2 say; default: the newest tested one of each line
  -packages  folders, pkg/client/apiutil say, or with /... below;
             default: pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...
  -keep      where to leave the trees and what the tests said; default: nowhere

With either of the first two nothing is written but the table to stdout. All of it
takes about a quarter of an hour for each release, most of it compiling.
END
}

main() {
	local version
	parse "$@"
	cd "$root"
	prepare
	for version in ${lines//,/ }; do
		trees "$version"
		for side in stock fork; do check "$version" "$side"; done
	done
	compare
}

parse() {
	lines='' packages='' keep='' complete=true
	while [[ $# -gt 0 ]]; do
		case $1 in
		-h | --help)
			usage
			exit
			;;
		-lines | -packages | -keep) [[ $# -gt 1 ]] || die "$1 needs an argument" ;;
		*)
			usage >&2
			exit 2
			;;
		esac
		case $1 in
		-lines) lines=$2 complete=false ;;
		-packages) packages=$2 complete=false ;;
		-keep) keep=$2 ;;
		esac
		shift 2
	done
	packages=${packages:-pkg/client/...,pkg/cache/...,pkg/cluster/...,pkg/manager/...}
}

# prepare makes the folder to work in, and finds the servers.
prepare() {
	if [[ -n $keep ]]; then
		mkdir -p "$keep"
		work=$(cd "$keep" && pwd)
		[[ -z $(ls -A "$work") ]] || die "$keep is not empty"
	else
		work=$(mktemp -d)
		trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
	fi
	results=$work/results
	mkdir -p "$results"
	go build -o "$work/fork" ./hack/fork
	go build -o "$work/compare" ./hack/fork/matrix
	[[ -n $lines ]] || lines=$("$work/fork" -h | grep -o 'newest tested v[0-9.]*[0-9]' | awk '{ print $3 }' | paste -s -d, -)
	latest=$(hack/envtest.sh latest)
	legacy=$(hack/envtest.sh legacy)
	hack/envtest.sh legacy-store "$work/store" >"$work/store.env"
	{
		echo "API servers: $("$latest/kube-apiserver" --version); and $("$legacy/kube-apiserver" --version) for the part of upstream's test of the"
		echo "mapper that is without aggregated discovery, for all of that test on v0.20, where both parts share a server. $(go version | awk '{ print $3 }')."
	} >"$results/server.txt"
}

# trees makes $work/VERSION/stock and /fork, both without the white-box test.
trees() {
	local dir=$work/$1 stock
	say "$1: trees"
	mkdir -p "$dir"
	stock=$(cd "$work" && go mod download -json "sigs.k8s.io/controller-runtime@$1" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
	[[ -d $stock ]] || die "no controller-runtime $1 in the module cache"
	cp -R "$stock" "$dir/stock"
	chmod -R u+w "$dir/stock"
	rm -f "$dir/stock/pkg/client/apiutil/restmapper_wb_test.go"
	"$work/fork" -o "$dir/fork" -version "$1" -full >&2
}

# check VERSION SIDE builds and vets a tree and runs its tests.
check() {
	local tree=$work/$1/$2 to=$results/$1/$2 package
	mkdir -p "$to"
	say "$1 $2: build"
	quietly "$to/build" go -C "$tree" build ./...
	say "$1 $2: vet"
	quietly "$to/vet" go -C "$tree" vet ./...
	while IFS= read -r package; do
		try "$tree" "$package" "$to/${package//\//_}"
	done < <(tested "$work/$1/stock")
}

# quietly FILE COMMAND... notes in FILE.txt whether the command succeeds; what it
# says is in FILE.log, and shown if it fails.
quietly() {
	local file=$1
	shift
	if "$@" >"$file.log" 2>&1; then
		echo ok >"$file.txt"
	else
		echo failed >"$file.txt"
		grep -v '^go: downloading' "$file.log" | tail -n 20 >&2
	fi
}

# tested TREE prints the folders of the packages asked for that have tests.
tested() (
	local patterns=./${packages//,/ ./}
	cd "$1"
	# shellcheck disable=SC2086 # the patterns are words
	go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' $patterns |
		sed -n 's|^sigs.k8s.io/controller-runtime/||p' | sort -u
)

# try TREE PACKAGE FOLDER runs the tests of a package, a second time if any fail.
try() {
	local n
	mkdir -p "$3"
	for n in 1 2; do
		say "${1#"$work"/}: $2$([[ $n == 1 ]] || echo ', again')"
		attempt "$1" "$2" "$3/$n" && return
	done
	return 0 # compare says what failed
}

# attempt TREE PACKAGE FILE leaves what go test said in FILE.go, and ginkgo's
# report, which knows the specs that go test does not, in FILE.ginkgo.
attempt() (
	cd "$1"
	source "$work/store.env"
	export KUBEBUILDER_ASSETS=$latest
	if [[ $2 == pkg/client/apiutil ]] && ! grep -q DownloadBinaryAssets "$2/restmapper_test.go"; then
		KUBEBUILDER_ASSETS=$legacy
	fi
	if grep -q onsi/ginkgo "$2"/*_test.go; then
		go test -json -count=1 -timeout 20m "./$2" -args "-ginkgo.json-report=$3.ginkgo" >"$3.go" 2>"$3.log"
	else
		go test -json -count=1 -timeout 20m "./$2" >"$3.go" 2>"$3.log"
	fi
)

compare() {
	if $complete; then
		"$work/compare" -results "$results" -o hack/fork/MATRIX.md
	else
		"$work/compare" -results "$results"
	fi
}

# In braces: bash reads a script while it runs it, and this takes long enough for
# somebody to edit it.
{
	main "$@"
	exit
}
