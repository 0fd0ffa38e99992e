#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Runs all tests, from a fresh clone, with nothing installed but Go, git and a C
# compiler. The first run also builds the tools and, where none can be
# downloaded, the API servers; they are cached outside the checkout.
#
#	hack/test.sh          everything
#	hack/test.sh -quick   without what needs an API server
#
# A part that fails does not stop the others. The last line counts the tests of
# all parts: "N passed, N failed, N skipped". Reasons for skips stand above it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

upstream=v0.25.2
quick=false
case "${1:-}" in
'') ;;
-quick) quick=true ;;
*) die "usage: hack/test.sh [-quick]" ;;
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
	KUBEBUILDER_ASSETS=$(hack/envtest.sh latest) || return
	export KUBEBUILDER_ASSETS
	hack/envtest.sh legacy-store "$work/store" >"$work/store.env"
}

# forked runs upstream's own test of the mapper, unmodified, and ours beside it.
forked() {
	local tree="$work/tree" stock
	go run ./hack/fork -o "$tree" -version "$upstream" || return
	stock=$(go mod download -json "sigs.k8s.io/controller-runtime@$upstream" | sed -n 's/.*"Dir": "\(.*\)",*/\1/p')
	cmp "$stock/pkg/client/apiutil/restmapper_test.go" "$tree/pkg/client/apiutil/restmapper_test.go" || return
	(cd "$tree" && go build ./... && go vet ./pkg/client/apiutil/...) || return
	# The test without aggregated discovery looks for its server in setup-envtest's store.
	local environment="$work/store.env"
	gotest "$tree" -race -count=1 -timeout 15m ./pkg/client/apiutil/...
}

# replays shows after the tests how stock and fork fared, side by side.
replays() {
	local status=0
	export FRESHMAPPER_E2E_RESULTS="$work/results"
	gotest hack/e2e -race -count=1 -timeout 30m ./... || status=$?
	if [[ -f $work/results ]]; then (cd hack/e2e && go run ./table "$work/results") || status=1; fi
	return "$status"
}

# consumers runs the examples' own unit tests.
consumers() {
	local folder status=0
	for folder in testdata/consumers/*/; do gotest "$folder" ./... || status=$?; done
	return "$status"
}

broken=false
gotestsum=$(tool -n gotestsum)
part "verify" hack/verify.sh
part "root module, -race" gotest . -race -timeout 20m ./...
part "the examples' own tests" consumers
if $quick; then
	echo "skipped: what needs an API server (-quick)" >>"$work/parts"
else
	part "API servers" servers
	part "upstream's test in the forked $upstream tree" forked
	part "replays on an API server" replays
fi

printf '\n' && cat "$work/parts"
printf '\n%d passed, %d failed, %d skipped\n' "$passed" "$failed" "$skipped"
if $broken; then exit 1; fi
