#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs all tests, from a fresh clone, with nothing installed but Go, git and a C
# compiler. The first run also builds the tools and, where none can be
# downloaded, the API servers; they are cached outside the checkout.
#
#	hack/test.sh          everything, with the newest and the oldest supported controller-runtime
#	hack/test.sh -quick   without what needs an API server
#	hack/test.sh -matrix  instead: upstream's tests on stock and fork of every supported
#	                      controller-runtime; writes hack/fork/MATRIX.md, takes an hour and a half
#	hack/test.sh -compatibility
#	                      instead: both ways in, with every supported controller-runtime, the oldest Go
#	                      and the newest; writes docs/compatibility.md
#	hack/test.sh -series  instead: builds and tests the full series for upstream slice by slice, takes
#	                      half an hour
#
# A part that fails does not stop the others. The last line counts the tests of
# all parts: "N passed, N failed, N skipped". Reasons for skips stand above it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

quick=false
case "${1:-}" in
'') ;;
-quick) quick=true ;;
-matrix) exec "$root/hack/matrix.sh" "${@:2}" ;;
-compatibility) exec "$root/hack/compatibility.sh" "${@:2}" ;;
-series) cd "$root" && FRESHMAPPER_SLICES=1 exec go test -count=1 -timeout 120m -v -run TestEachSlicePasses ./hack/stage/full ;;
*) die "usage: hack/test.sh [-quick | -matrix | -compatibility | -series]" ;;
esac

cd "$root"
work=$(mktemp -d)
# The module cache is read-only, and so are trees copied from it.
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
passed=0 failed=0 skipped=0
: >"$work/parts"

# part NAME COMMAND... runs one part and notes how it went and how long it took.
part() {
	local name=$1 start=$SECONDS verdict=ok
	shift
	say "$name"
	"$@" || verdict=FAILED
	say "$name: $verdict ($((SECONDS - start))s)"
	printf '%-44s %-7s %5ss\n' "$name" "$verdict" "$((SECONDS - start))" >>"$work/parts"
	[[ $verdict == ok ]] || broken=true
}

# gotest FOLDER ARGUMENTS... is `go test` with a readable report; it adds the
# folder's tests to the totals. environment may name a file to source before.
environment=/dev/null
gotest() {
	local folder=$1 log="$work/tests.json" status=0
	shift
	rm -f "$log"
	(
		cd "$folder" && source "$environment" &&
			"$gotestsum" --format pkgname-and-test-fails --jsonfile "$log" -- "$@"
	) || status=$?
	[[ -f $log ]] || return 1
	passed=$((passed + $(count pass "$log")))
	failed=$((failed + $(count fail "$log")))
	skipped=$((skipped + $(count skip "$log")))
	return "$status"
}

count() { grep -c "\"Action\":\"$1\",\"Package\":\"[^\"]*\",\"Test\":" "$2" || true; }

servers() {
	local latest
	legacy=$(hack/envtest.sh legacy) || return
	hack/envtest.sh legacy-store "$work/store" >"$work/store.env" || return
	latest=$(hack/envtest.sh latest) || return
	export KUBEBUILDER_ASSETS=$latest
}

# lines prints the newest tested release of each supported line, oldest first.
lines() { go run ./hack/fork -h | grep -o 'newest tested v[0-9.]*[0-9]' | awk '{ print $3 }'; }

# forked VERSION FLAGS... runs upstream's own tests of the mapper and the client,
# unmodified, in a forked tree, and ours beside them.
forked() {
	local version=$1 tree="$work/$1" environment="$work/$1.env" stock
	shift
	go run ./hack/fork -o "$tree" -version "$version" -full || return
	stock=$(cd "$work" && go mod download -json "sigs.k8s.io/controller-runtime@$version" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
	cmp "$stock/pkg/client/apiutil/restmapper_test.go" "$tree/pkg/client/apiutil/restmapper_test.go" || return
	(cd "$tree" && go build ./... && go vet ./pkg/client/... ./pkg/cache/... ./pkg/internal/follow ./pkg/metrics/...) || return
	# The test without aggregated discovery looks for its server in setup-envtest's
	# store; in v0.20 both parts take the same server, which has to be the old one,
	# as it has to for a test of the client that a new server fails.
	cp "$work/store.env" "$environment"
	grep -q DownloadBinaryAssets "$tree/pkg/client/apiutil/restmapper_test.go" || echo "export KUBEBUILDER_ASSETS='$legacy'" >>"$environment"
	gotest "$tree" "$@" -count=1 -timeout 15m ./pkg/client ./pkg/client/apiutil/... ./pkg/cache/internal ./pkg/internal/follow
}

# replays shows after the tests how stock and fork fared, side by side.
replays() {
	local status=0
	export FRESHMAPPER_E2E_RESULTS="$work/results"
	gotest hack/e2e -race -count=1 -timeout 30m ./... || status=$?
	if [[ -f $work/results ]]; then (cd hack/e2e && go run ./table "$work/results") || status=1; fi
	return "$status"
}

# root runs our own tests. Those of the patch series run upstream's, with servers.
root() {
	local environment=/dev/null
	if [[ -s $work/store.env ]]; then environment="$work/store.env"; fi
	gotest . -race -timeout 60m ./...
}

# consumers runs the examples' own unit tests. Unforked, they take the way for stock.
consumers() {
	local folder status=0
	for folder in testdata/consumers/*/; do gotest "$folder" -tags stock ./... || status=$?; done
	return "$status"
}

broken=false
gotestsum=$(tool -n gotestsum)
part "verify" hack/verify.sh
if ! $quick; then part "API servers" servers; fi
part "root module, -race" root
part "random histories" gotest hack/lincheck -count=1 . -seed 1
part "short proofs" gotest hack/proof -count=1 ./...
part "the examples' own tests" consumers
if $quick; then
	echo "skipped: what needs an API server (-quick)" >>"$work/parts"
else
	oldest=$(lines | head -n 1) newest=$(lines | tail -n 1)
	part "upstream's tests in the forked $newest tree, -race" forked "$newest" -race
	part "upstream's tests in the forked $oldest tree" forked "$oldest"
	part "replays on an API server" replays
fi

printf '\n' && cat "$work/parts"
if $broken; then verdict='; parts FAILED, see above'; else verdict=''; fi
printf '\n%d passed, %d failed, %d skipped%s\n' "$passed" "$failed" "$skipped" "$verdict"
if $broken; then exit 1; fi
