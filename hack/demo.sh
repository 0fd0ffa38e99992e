#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Shows stock and fork side by side. See usage below.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

usage() {
	cat <<'END'
usage: hack/demo.sh [-all]

Shows stock and fork side by side on a real API server.

It builds a sample controller (testdata/consumers/heal) twice: as it is, and with
controller-runtime forked by one replace line. Then CRDs come and go under both
(replays R1 to R5). It does the same with an operator as kubebuilder scaffolds it
(testdata/consumers/plain). The operator's CRD is deleted and comes back: as it was,
with the other scope, with another plural (replays S1 to S3). For each replay it
prints what the program saw, how many discovery requests it made, and how long it
took to heal.

The exit status is 0 if all heal on the fork, and all but S1 fail on stock. The first
run takes minutes: it compiles Kubernetes libraries, and builds an API server if none
can be downloaded. It leaves nothing behind but Go's caches and the API server's
(see hack/envtest.sh). Progress is on stderr.

  -all                 also the three larger examples (multicluster, lazywatch,
                       selfheal), each built on stock and on the fork: some
                       minutes more

  NO_COLOR=1           no colours, which are used only on a terminal
  KUBEBUILDER_ASSETS   use kube-apiserver and etcd of this folder
END
}

case "$*" in
'' | -all) ;;
-h | --help)
	usage
	exit
	;;
*)
	echo "error: unexpected $*" >&2
	usage >&2
	exit 2
	;;
esac

cd "$root"
say "getting an API server"
KUBEBUILDER_ASSETS=$(hack/envtest.sh latest)
export KUBEBUILDER_ASSETS
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export TMPDIR=$work FRESHMAPPER_E2E_PROGRAMS=$work FRESHMAPPER_E2E_RESULTS=$work/results # what is left there is removed with it

# show prints a command for the reader, then runs it.
show() {
	printf '\n$ %s\n' "$*"
	"$@"
}

table() {
	local color=false
	if [[ -t 1 && -z ${NO_COLOR:-} ]]; then color=true; fi
	"$work/table" -color=$color "$work/results"
}

# replay runs replays quietly. If they go wrong it shows all they said.
replay() {
	(cd hack/e2e && "$work/e2e.test" -test.run "$1" -test.v) >"$work/said" 2>&1 && return
	cat "$work/said" >&2
	if [[ -e $work/results ]]; then table; fi
	die "the replays did not go as they should: $1"
}

say "building the sample controller and an operator on stock controller-runtime"
for name in heal plain; do
	cp -R "testdata/consumers/$name" "$work/$name"
	(cd "$work/$name" && go build -trimpath -o "$work/$name-stock" .)
done
say "forking controller-runtime into copies of them"
for name in heal plain; do
	show go run ./hack/fork -into "$work/$name"
	show grep -n '^replace' "$work/$name/go.mod"
	echo
	(cd "$work/$name" && go build -trimpath -o "$work/$name-fork" .)
done
say "building the replays"
(cd hack/e2e && go test -c -o "$work/e2e.test" . && go build -o "$work/table" ./table)

say "starting the API server and replaying R1 to R5, about 20 seconds"
replay '^TestHeal$'
say "replaying S1 to S3, about a minute: stock is given 15 seconds each time"
replay '^TestPlain$/^S(1|2-cluster|2-namespace|3)$'
if [[ $# -gt 0 ]]; then
	say "building and running the larger examples, some minutes"
	(unset FRESHMAPPER_E2E_PROGRAMS && replay '^Test(Multicluster|MapperProvider|ManyTenants|Lazywatch|Selfheal)$')
fi
table
