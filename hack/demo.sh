#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows the main job in one command. See usage below.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/hack/envtest/process.sh"

usage() {
	cat <<'END'
usage: hack/demo.sh [-all]

Gets a real API server, builds a sample controller (testdata/consumers/heal) once
as it stands and once with controller-runtime forked by one replace line, lets
CRDs come and go under both (replays R1 to R5). Then the same for an operator as
kubebuilder scaffolds it (testdata/consumers/plain), whose CRD is deleted and comes
back as it was, with the other scope, with another plural (replays S1 to S3). Prints
how each fared: what it saw, how many discovery requests it made, how long it took
to heal.

Exit status 0: all of them heal on the fork, and all but S1 fail on stock. The first run
compiles Kubernetes libraries, and builds an API server if none can be downloaded:
minutes. Nothing is left behind but Go's caches and the API server's
(see hack/envtest.sh). Progress is on stderr.

  -all                 also the three larger examples (multicluster, lazywatch,
                       selfheal), each built on stock and on the fork: some
                       minutes more

  NO_COLOR=1           no colours, which are used only on a terminal
  KUBEBUILDER_ASSETS   a folder with kube-apiserver and etcd, to use those
END
}

all=false
case "${1:-} $#" in
' 0') ;;
'-all 1') all=true ;;
'-h 1' | '--help 1')
	usage
	exit 0
	;;
*)
	usage >&2
	exit 2
	;;
esac

work=$(mktemp -d)
trap 'stop; rm -rf "$work"' EXIT
trap 'exit 130' INT
trap 'exit 143' TERM HUP
export TMPDIR=$work # whatever the commands below leave is removed with it

# stop ends the job and waits for all that came from it, 20 seconds at most: the
# test that is told to end stops its API server first, and writes meanwhile.
stop() {
	local pid family='' tries=0
	if [[ -n $job ]]; then family=$(family "$job"); fi
	end_job
	for pid in $family; do
		while kill -0 "$pid" 2>/dev/null && ((tries++ < 200)); do sleep 0.1; done
	done
}

# run runs a command as the job that a signal ends: bash would run no trap while
# it waits for a command in the foreground.
run() {
	local status=0
	"$@" &
	job=$!
	wait "$job" || status=$?
	job=''
	return $status
}

# show prints a command for the reader, then runs it.
show() {
	printf '\n$ %s\n' "$*"
	run "$@"
}

build() { (cd "$1" && go build -o "$work/$2" .); }

replay() (
	cd "$root/hack/e2e"
	export KUBEBUILDER_ASSETS=$assets FRESHMAPPER_E2E_PROGRAMS=$work FRESHMAPPER_E2E_RESULTS=$work/results
	exec "$work/e2e.test" -test.run "$1" -test.v
)

# examples builds its programs itself, as hack/test.sh does.
examples() (
	cd "$root/hack/e2e"
	export KUBEBUILDER_ASSETS=$assets FRESHMAPPER_E2E_RESULTS=$work/results
	exec "$work/e2e.test" -test.run '^Test(Multicluster|MapperProvider|ManyTenants|Lazywatch|Selfheal)$' -test.v
)

# must NAME COMMAND... runs replays quietly; if they go wrong it shows all they said.
must() {
	local name=$1
	shift
	run "$@" >"$work/log" 2>&1 && return
	cat "$work/log" >&2
	if [[ -s $work/results ]]; then table || true; fi
	die "$name did not go as they should"
}

table() {
	local color=false
	if [[ -t 1 && -z ${NO_COLOR:-} ]]; then color=true; fi
	"$work/table" -color=$color "$work/results"
}

command -v go >/dev/null || die "no go command: install Go first"
cd "$root"

say "getting an API server"
run hack/envtest.sh latest >"$work/assets"
assets=$(cat "$work/assets")

say "building the sample controller and an operator on stock controller-runtime"
for name in heal plain; do
	cp -R "testdata/consumers/$name" "$work/$name"
	run build "$work/$name" "$name-stock"
done

say "forking controller-runtime into copies of them"
for name in heal plain; do
	show go run ./hack/fork -into "$work/$name"
	show grep -n '^replace' "$work/$name/go.mod"
	echo
	run build "$work/$name" "$name-fork"
done

say "building the replays"
run go -C hack/e2e test -c -o "$work/e2e.test" .
run go -C hack/e2e build -o "$work/table" ./table

say "starting the API server and replaying R1 to R5, about 20 seconds"
must "the replays" replay '^TestHeal$'
say "replaying S1 to S3, about a minute: stock is given 15 seconds each time"
must "the operator's replays" replay '^TestPlain$/^S(1|2-cluster|2-namespace|3)$'
if $all; then
	say "building and running the larger examples, some minutes"
	must "the examples" examples
fi
table
