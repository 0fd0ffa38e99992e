#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/bench.sh [-quick] [-count N] [-o DIR] [-before FILE]
#
# Measures this project's mapper beside controller-runtime's and client-go's on
# an API server in memory (hack/bench), and writes a page with tables, the
# figures to reach, plots, and benchstat's view.
#
#   -count N      rounds, default 8; about 2 minutes each on two quiet cores, the first some more
#   -o DIR        where to write, default hack/bench/results
#   -before FILE  raw.txt of an earlier run; benchstat.txt then ends with a comparison of
#                 ours and the floor with what they were
#   -quick        one short round, for a look; the default of -o is a temporary folder
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"

exec go -C "$root/hack/bench" test -count=1 -v -timeout 0 -run '^TestRounds$' . -args -measure -from "$PWD" "$@"
