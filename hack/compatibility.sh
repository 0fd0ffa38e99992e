#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Builds and runs a program with each way in (MapperProvider, the fork), with every
# supported controller-runtime, with the oldest Go that it takes and with the one
# that is installed. hack/test.sh -compatibility calls it. It writes
# docs/compatibility.md, unless lines are named: then it prints the table.
#
#	hack/compatibility.sh [v0.20.4 v0.25.2 ...]
#
# An older Go comes from the Go module proxy, as GOTOOLCHAIN does it.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
cd "$root"

oldest_go() { # of a controller-runtime: the newest patch release of what its go.mod asks for
	local minor
	minor=$(go mod download -json "sigs.k8s.io/controller-runtime@$1" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p' |
		xargs awk '$1 == "go" { split($2, v, "."); print v[1] "." v[2] }')
	go list -m -versions golang.org/toolchain 2>/dev/null | tr ' ' '\n' |
		sed -n "s/.*-go\($minor\.[0-9]*\)\.$(go env GOOS)-$(go env GOARCH)$/\1/p" | sort -t. -k3 -n | tail -n 1
}

kubernetes() { # that a controller-runtime requires
	go mod download -json "sigs.k8s.io/controller-runtime@$1" | sed -n 's/.*"GoMod": "\(.*\)",*/\1/p' |
		xargs awk '$1 == "k8s.io/client-go" { print $2 }'
}

# cell TEST LINE GO tries one.
cell() {
	say "$1, controller-runtime $2, Go $3"
	if GOTOOLCHAIN="go$3" go test -count=1 -timeout 60m ./hack/ways -run "^$1\$/^${2//./\\.}\$" >&2; then echo ok; else echo FAILED; fi
}

table() {
	local line go oldest newest
	newest=$(go env GOVERSION)
	newest=${newest#go}
	echo '| controller-runtime | k8s.io | Go | provider | fork |'
	echo '|---|---|---|---|---|'
	for line in "$@"; do
		oldest=$(oldest_go "$line")
		if [[ ${oldest%.*} == "${newest%.*}" ]]; then oldest=''; fi
		for go in $oldest $newest; do
			echo "| $line | $(kubernetes "$line") | $go | $(cell TestProvider "$line" "$go") | $(cell TestFork "$line" "$go") |"
		done
	done
}

document() {
	cat <<'END'
<!-- SPDX-License-Identifier: Apache-2.0 -->

# Compatibility

Written by `hack/test.sh -compatibility`. For each row a program with a manager was built and run, once with this mapper through
`MapperProvider` and once with the fork, with the k8s.io modules that this controller-runtime requires: the oldest Go that it
takes, and the newest. How upstream's own tests fare on the fork of each is in [MATRIX.md](../hack/fork/MATRIX.md).

END
	table "$@"
	cat <<'END'

Any patch release of these lines may be forked; the newest of each is what is tested. API servers: discovery as Kubernetes 1.37
and 1.28 serve it, the latter with and without aggregated discovery, in `hack/test.sh`.

With the provider go.mod gains one requirement and no module moves, but for one: with v0.21 to v0.23 the indirect
`github.com/davecgh/go-spew` goes from v1.1.1 to the commit after it, which k8s.io v0.32 requires.
END
}

if [[ $# -gt 0 ]]; then
	table "$@"
	exit
fi
lines=$(go run ./hack/fork -h | grep -o 'newest tested v[0-9.]*[0-9]' | awk '{ print $3 }')
made=$(mktemp)
# shellcheck disable=SC2086 # the lines are words
document $lines >"$made"
cat "$made" >docs/compatibility.md
rm "$made"
cat docs/compatibility.md
! grep -q FAILED docs/compatibility.md
