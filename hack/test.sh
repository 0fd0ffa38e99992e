#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/test.sh [-quick | -nightly] [-only PATTERN]
#        hack/test.sh -matrix [-lines V,V...] [-packages P,P...]
#
# Runs the tests, from a fresh clone, with nothing installed but Go, git and a C
# compiler. The first run also builds gotestsum, the linter and, where none can be
# downloaded, the API servers, which are cached outside the checkout.
#
#   (nothing)       what every commit must pass
#   -quick          the same without what needs an API server
#   -nightly        everything, with the race detector throughout
#   -only PATTERN   only the parts whose names, in the table at the end, match
#   -matrix         instead: upstream's tests on stock and fork of every supported
#                   controller-runtime; writes hack/fork/MATRIX.md, takes an hour and a half
#
# With -lines (v0.20.4,v0.25.2 say) or -packages (folders, pkg/client/apiutil say, or with
# /... below) a page is only printed.
#
# A part that fails does not stop the others. A table says how long each part took, then
# come failures, and the reasons for skips. The last line counts the tests of all parts
# and reports whether all is well: "N passed, N failed, N skipped; all N parts are ok".
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/hack/sum.sh"
case " $* " in *' -h '* | *' --help '*) usage && exit ;; esac

# The names of tests in these lists must exist, or nothing would be left out.

# longest are the tests of the library that take much longer with the race detector, minutes
# together. They run without it. Most have one goroutine in virtual time.
longest='TestHerd|TestFleetChurn|TestWatchesTakeLittleMemory|TestNamesOfCallersAreNotKept|TestRandomSequencesKeepInvariants'
longest+='|TestNoDocumentCostsMinutes|TestNegativeTTLOfManyNames|TestOracle|TestLargeServersAreRead|TestTooMuchIsNotDecoded'
nights='TestEachPatchPasses|TestKubebuilderProject|TestConsumed' # left to the night whole
campaigns='TestChaos|TestSoak|TestHostile|TestGateway|TestReplicas' # hack/proof, short unless flags make it longer: by night
proof='TestAdopters|TestUpstream' # they do nothing without flags: hack/proof.sh, -matrix
upstreams='TestApiMachinery|TestSource|TestLazyRestMapperProvider'  # upstream's, in the mapper's package
follow='TestClientFollows|TestFirstWriteStaysInItsNamespace|TestCachesFollow|TestIndexOutlivesItsContext|TestHandlers|TestAbsentKind' # what clients and caches do everywhere

# not_run lists what the tests of a commit leave out, and who tests it. Each takes long, and
# proves again, elsewhere or in more places, what a commit's tests prove once.
not_run() {
	cat <<-END
		the race detector on the tools in hack, on the replays, on the forked tree and on the library's longest tests: the rest of the library has it here (hack/test.sh -nightly)
		our own tests of the mapper in the forked tree, which have run in the root module; upstream's of the cache there (hack/test.sh -nightly)
		upstream's tests in the fork of the oldest line: the newest has them here (hack/test.sh -nightly)
		most tests of clients and caches that follow, in the forked tree and with the oldest controller-runtime of fresh: they ran with the newest (hack/test.sh -nightly)
		short runs of chaos, gateway, replicas, soak and hostile: what they are made of is tested here (hack/test.sh -nightly)
		the replay of a CRD that becomes namespaced under an operator of two namespaces: here it becomes cluster-scoped, and then namespaced again (hack/test.sh -nightly)
		both installations with the lines between the oldest and the newest, and with the oldest Go, which also vets the root module (.github/workflows/nightly.yml)
		each patch of the series for upstream by itself, kubebuilder's make targets, the release as a consumer's module (hack/test.sh -nightly)
		the linter on nested modules, vet on forked trees (hack/test.sh -nightly)
		fuzzing, other people's operators; the campaigns at length (hack/proof.sh); the benchmarks (hack/bench.sh)
		all upstream tests on stock and fork of every line; its examples linked, which are only vetted here (hack/test.sh -matrix)
	END
}

# without_servers are the parts that need none. Each row has a name, and then a folder
# and arguments for go test, or another command.
without_servers() {
	lane=b
	if $nightly; then
		part 'library, -race' gotest . -race "${library[@]}"
	else
		part 'library, -race' gotest . -race -skip "^($longest)$" "${library[@]}"
		part 'library, its longest tests' gotest . -run "^($longest)$" "${library[@]}"
	fi
	part 'random histories' gotest hack/lincheck -count=1 . -seed 1
	part 'tools in hack' gotest . $race -skip "$skipped" ./hack/ways ./hack/... # the longest first
	part 'proofs' gotest hack/proof -count=1 -skip "$unproven" ./...
	part "the benchmarks' own tests" gotest hack/bench -run '^Test(SameAnswers|Targets)$' .
	part "the examples' own tests" gotest examples -tags stock ./... # unforked, they take the way for stock
	part 'clients and caches that follow, -race' gotest hack/e2e -race github.com/freshmapper/freshmapper/fresh/...
	part 'the same with the oldest controller-runtime' gotest fresh -run "$followed" ./...
	part 'verify' "$root/hack/verify.sh" $lint
}

# with_servers are the parts that need an API server.
with_servers() {
	local version
	lane=c
	FRESHMAPPER_E2E_RESULTS=$work/results part 'replays on an API server' gotest hack/e2e $race -count=1 -parallel 4 -skip "$replays" ./...
	for version in $forked; do
		part "the forked $version, built" build "$version" "$work/$version"
		part "upstream's tests in the forked $version" upstream "$work/$version"
	done
}

# servers finds or builds the API servers, and notes the environment that leads to them.
servers() {
	local latest legacy
	latest=$("$root/hack/envtest.sh" latest) && legacy=$("$root/hack/envtest.sh" legacy) &&
		"$root/hack/envtest.sh" legacy-store "$work/store" >"$work/store.env" &&
		printf 'export KUBEBUILDER_ASSETS=%q\nlegacy=%q\n' "$latest" "$legacy" >>"$work/store.env" && mv "$work/store.env" "$work/env"
}

# build writes the forked tree of a release, and compiles it. Examples are not linked: that
# takes longer than all else.
build() { # VERSION FOLDER
	go -C "$root" run ./hack/fork -o "$2" -version "$1" -full || return
	(cd "$2" && go build . ./pkg/... && go vet ./examples/... $vetted)
}

# followed adds our tests of clients and caches that follow to a forked tree, where upstream's
# constructors make them, and where they may import our server.
followed() { # FOLDER
	local file to=$1/pkg/client/apiutil/followed
	mkdir "$to" || return
	for file in "$root"/fresh/{server,client,client_namespaced,cache,cache_absent,cache_options,handler}_test.go; do
		sed 's,^package fresh_test$,package followed_test,
			s,github.com/freshmapper/freshmapper/apiutil,sigs.k8s.io/controller-runtime/pkg/client/apiutil,
			s,github.com/freshmapper/freshmapper/internal,sigs.k8s.io/controller-runtime/pkg/client/apiutil/internal,' \
			"$file" >"$to/${file##*/}" || return
	done
	cat >"$to/ways_test.go" <<-'END'
		package followed_test

		import (
			"sigs.k8s.io/controller-runtime/pkg/cache"
			"sigs.k8s.io/controller-runtime/pkg/client"
		)

		var (
			newClient, newWithWatch, newNamespaced = client.New, client.NewWithWatch, client.NewNamespacedClient
			newCache                               = cache.New
		)
	END
}

# upstream runs upstream's own tests of the mapper and the client, unmodified, in a forked
# tree, by night ours beside them. The cache's suite, TestSource, takes minutes: the night
# and the matrix have it. In v0.20 both parts of the mapper's test take the same server,
# which has to be the old one; a test of the client needs the same.
upstream() { # FOLDER
	local status=0 name
	grep -q DownloadBinaryAssets "$1/pkg/client/apiutil/restmapper_test.go" || local -x KUBEBUILDER_ASSETS=$legacy
	followed "$1" || return
	set -- "$1" $race -count=1
	if $nightly; then
		gotest "$@" ./pkg/client ./pkg/client/apiutil/... ./pkg/cache/... ./pkg/handler || status=1
	else
		gotest "$@" ./pkg/client ./pkg/cache/internal ./pkg/handler || status=1
		gotest "$@" -run "$followed" ./pkg/client/apiutil/followed || status=1
		gotest "$@" -skip '^TestSource$' ./pkg/cache || status=1
		gotest "$@" -run "^($upstreams)$" ./pkg/client/apiutil || status=1
	fi
	for name in ${upstreams//|/ }; do # go test passes if no test has the name
		grep -q "\"Action\":\"pass\".*\"Test\":\"$name\"" "$row".*.json || { echo "error: upstream's $name did not pass" >&2 && status=1; }
	done
	return $status
}

# part runs a command as a part with this name, and notes how it ended (hack/sum.sh).
part() {
	local name=$1 begun=$SECONDS status=0 took said=ok
	[[ -z $only || $name =~ $only ]] || return 0
	count=$((count + 1)) row=$work/rows/$lane$((count + 10)) runs=0
	printf '%s\n' "$name" >"$row.part"
	say "$name"
	shift
	"$@" || status=$?
	took=$((SECONDS - begun))
	printf '%s\t%s\t%s\n' "$name" "$status" "$took" >"$row.part"
	((status == 0)) || said=FAILED
	say "$name: $said ($took s)"
}

# gotest runs go test in a folder. It shows a line for each package and then what failed,
# and keeps all that go test says.
gotest() {
	local dir=$1
	[[ $dir == /* ]] || dir=$root/$dir
	runs=$((runs + 1))
	shift
	(cd "$dir" && "$root/.cache/gotestsum" --format standard-quiet --hide-summary skipped \
		--ignore-non-json-output-lines --jsonfile "$row.$runs.json" -- -timeout 60m "$@") # that only ends what hangs
}

# matrix compares stock and fork by upstream's tests. With flags its page is only printed.
matrix() { # FLAGS...
	local status=0
	start go -C "$root/hack/proof" test -count=1 -timeout 12h -v -run '^TestUpstream$' ./adopters -args -page "$work/page.md" "$@" >&2
	await
	[[ -z $reason ]] || status=1
	[[ -e $work/page.md ]] || exit 1
	cat "$work/page.md"
	(($#)) || cp "$work/page.md" "$root/hack/fork/MATRIX.md" # a page that says what failed is worth having, too
	exit $status
}

# start starts a command in a process group of its own, and await waits for all of these. Parts
# never fail; that they do is the reason why the run has ended early.
start() {
	set -m
	"$@" </dev/null &
	groups+=" $!"
	set +m
}

await() {
	local group
	for group in $groups; do wait "$group" || reason='hack/test.sh BROKE'; done
	groups=''
}

# end ends all groups, and waits before it kills: tests stop their API servers first.
end() {
	local group i
	trap '' INT TERM HUP
	for group in $groups; do kill -TERM -- "-$group" 2>/dev/null || true; done
	for group in $groups; do
		for ((i = 0; i < 200; i++)); do
			kill -0 -- "-$group" 2>/dev/null || continue 2
			sleep 0.1
		done
		kill -KILL -- "-$group" 2>/dev/null || true
	done
}

# report prints what all parts came to, and then ends the script.
report() {
	local status=0
	trap 'exit 130' INT TERM HUP
	[[ ! -e $work/results.table ]] || cat "$work/results.table"
	printf '\nthe slowest tests:\n'
	cat "$work"/rows/*.json 2>/dev/null | "$root/.cache/gotestsum" tool slowest --num 12 2>/dev/null || true
	! $quick || echo 'not run: what needs an API server (-quick)'
	[[ -z $only ]] || echo "not run: parts whose names do not match $only (-only)"
	not_run | { if $nightly; then grep -v -e '-nightly)$'; else cat; fi; } | sed 's/^/not run: /'
	sum_up "$work/rows" "$reason" || status=1
	exit $status
}

quick=false nightly=false only=''
work=$(mktemp -d) groups='' count=0 reason=''
trap 'end; chmod -R u+w "$work" && rm -rf "$work"' EXIT
trap 'end; exit 130' INT TERM HUP
# Tests that are interrupted leave folders. They build programs and trees in such folders: if
# these paths are not in the compiled code, Go's build cache can be used the next time. Nobody
# debugs these programs, and without symbols they are linked in two thirds of the time.
export TMPDIR=$work GOFLAGS="${GOFLAGS:-} -trimpath -ldflags=-s"
command -v go >/dev/null || die "no go command: install Go first, see go.dev/dl"

if [[ ${1:-} == -matrix ]]; then
	servers || die 'no API servers'
	source "$work/env"
	export LEGACY_ASSETS=$legacy
	shift
	matrix "${@/#-packages/-folders}"
fi
while (($#)); do
	case $1 in
	-quick) quick=true ;;
	-nightly) nightly=true ;;
	-only) only=${2:-} && shift && [[ -n $only ]] || wrong '-only without a pattern' ;;
	*) wrong "$1" ;;
	esac
	shift
done
! ($quick && $nightly) || wrong '-quick with -nightly'

for name in ${longest//|/ } ${nights//|/ } ${campaigns//|/ } ${proof//|/ } ${follow//|/ } TestPlain; do
	git -C "$root" grep -q --untracked "^func $name(t \*testing\.T)" -- '*_test.go' || die "there is no test $name: correct the lists in hack/test.sh"
done
releases=$(sed -n 's/.*Newest: *"\(v[^"]*\)".*/\1/p' "$root/hack/fork/tree/lines.go")
forked=${releases##*$'\n'}
library=(. ./apiutil/... ./internal/...)
followed=. skipped='^$' unproven="^($proof)$" replays='^$' lint='' vetted='' race='' legacy=''
if $nightly; then
	race=-race forked+=" ${releases%%$'\n'*}" vetted='./pkg/client/... ./pkg/cache/... ./pkg/handler ./pkg/metrics/...'
else
	followed="^($follow)$" skipped+="|^($nights)$" unproven+="|^($campaigns)$" lint=-root
	replays='^TestPlain$/^S2-cluster-namespaces$'
fi

say 'gotestsum'
go -C "$root/hack/tools" build -o "$root/.cache/gotestsum" gotest.tools/gotestsum
mkdir "$work/rows"
trap 'end; reason=INTERRUPTED; report' INT TERM HUP
if ! $quick; then
	lane=a only='' start part 'API servers' servers
	await
	[[ ! -e $work/env ]] || source "$work/env"
fi
start without_servers
! $nightly || await
$quick || start with_servers # these wait most of the time
await
if [[ -n $only ]] && ! ls "$work"/rows/[bc]* >/dev/null 2>&1; then reason="NO PART's name matches $only"; fi
report
