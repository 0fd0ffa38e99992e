#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks docs/monitoring with promtool: the alert rules and their tests, and the
# queries of the dashboard. The first run builds promtool, which takes minutes.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"
(($# == 0)) || wrong "$*"

promtool() { go tool -modfile="$root/hack/monitoring/go.mod" promtool "$@"; }

cd "$root/docs/monitoring"
promtool check rules alerts.yaml
promtool test rules alerts_test.yaml
queries=0
while IFS= read -r query; do
	query=${query//\\\"/\"} query=${query//\$__rate_interval/5m}
	promtool --experimental promql format "$query" >/dev/null || die "promtool does not take this query of dashboard.json: $query"
	queries=$((queries + 1))
done < <(sed -n 's/^ *"expr": "\(.*\)",$/\1/p' dashboard.json)
[[ $queries -gt 0 ]] || die "dashboard.json has no queries"
echo "monitoring: rules and their tests are fine, and $queries queries of the dashboard"
