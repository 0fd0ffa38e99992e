#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/demo.sh [-all]
#
# Shows plain controller-runtime, fresh.NewManager and the patched controller-runtime side by side on a real API
# server, as CRDs are re-created: an operator as kubebuilder scaffolds it (examples/plain, replays S1 to
# S3 and S7). It prints whether and when each recovered, and after how many discovery requests. The exit status is 0 if
# all recover that must, and plain controller-runtime fails where it is expected to.
#
#   -all                 all replays of the operator: some minutes more
#
#   NO_COLOR=1           no colours, which are used only on a terminal
#   KUBEBUILDER_ASSETS   use kube-apiserver and etcd of this folder
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"
[[ "$*" == '' || "$*" == -all ]] || wrong "$*"

say "two minutes; the first time more, to build an API server if none can be downloaded, and two operators"
KUBEBUILDER_ASSETS=$("$root/hack/envtest.sh" latest)
work=$(mktemp -d)
trap 'chmod -R u+w "$work" && rm -rf "$work"' EXIT
export KUBEBUILDER_ASSETS GOFLAGS="${GOFLAGS:-} -trimpath" TMPDIR=$work FRESHMAPPER_E2E_RESULTS=$work/results
say "patching controller-runtime for a copy of the operator"
cp -R "$root/examples/plain" "$work/plain"
go -C "$root" run ./hack/fork -into "$work/plain"
say "building the operator plain, with fresh and patched, and replaying"
replays='^TestPlain(Optional)?$/^S(1|2-cluster|2-namespace|3)$'
if [[ $# -gt 0 ]]; then replays='^TestPlain(Optional)?$'; fi
result=0
cd "$root/hack/e2e"
go test -count=1 -timeout 30m -v -run "$replays" . 2>&1 | tee "$work/said" |
	sed -nE 's,^=== RUN +Test(PlainOptional|[^/]+/[^/]+)$,    replaying \1,p' >&2 || { result=1 && cat "$work/said" >&2; }
if [[ -e $work/results.table ]]; then cat "$work/results.table"; fi
exit $result
