#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Checks everything about the checkout that needs no test run: formatting, vet,
# go.mod and go.sum, lint, script syntax, paths of this machine left in files.
# Files not yet added to git are checked too. A failed check does not stop the
# others; the exit status is 1 if any failed.
#
#	hack/verify.sh          all checks; the first run builds golangci-lint, a few minutes
#	hack/verify.sh -fast    without golangci-lint
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

fast=false
case "${1:-}" in
'') ;;
-fast) fast=true ;;
*) die "usage: hack/verify.sh [-fast]" ;;
esac

cd "$root"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
: >"$scratch/table"

# check NAME MODULE COMMAND... runs the command quietly and shows what it
# printed only if it failed.
check() {
	local name=$1 module=$2 verdict=ok start=$SECONDS
	shift 2
	say "$name $module"
	"$@" >"$scratch/log" 2>&1 || verdict=failed
	if [[ $verdict == failed ]]; then
		sed 's/^/    /' "$scratch/log" >&2
	fi
	say "$name $module: $verdict ($((SECONDS - start))s)"
	row "$name" "$module" "$verdict"
}

# skip NAME MODULE REASON... Skipped checks show in the table, uncounted.
skip() {
	local name=$1 module=$2
	shift 2
	say "$name $module: skipped, $*"
	row "$name" "$module" "skipped: $*"
}

row() { printf '%-8s %-36s %s\n' "$@" >>"$scratch/table"; }

# The checks. `check` runs them where set -e is off: each must end with the
# status it means. "printed_nothing" is the status of those that list faults.

printed_nothing() { [[ ! -s $scratch/log ]]; }

formatted() {
	files '*.go' | tr '\n' '\0' | xargs -0 gofmt -l && printed_nothing
}

scripts_parse() {
	local script status=0
	while IFS= read -r script; do
		bash -n "$script" || status=1
	done < <(files '*.sh')
	return $status
}

# A path of the machine a file was written on means nothing anywhere else.
no_local_paths() {
	local path
	for path in "$root" "${HOME:-/}"; do
		[[ $path == / ]] && continue
		path=$(printf '%s' "$path" | sed 's/[][\.*^$+?(){}|]/\\&/g')
		files | tr '\n' '\0' |
			xargs -0 grep -nE "(^|[^[:alnum:]_./-])$path(/|[^[:alnum:]_.-]|\$)" /dev/null
	done
	printed_nothing
}

lint() (
	cd "$1" && tool golangci-lint run --allow-serial-runners --build-tags "$(tags "$1")" ./...
)

# tags are what a module builds with here: examples that import the fork's API
# have another way for stock controller-runtime, which is what they have here.
tags() { if [[ $1 == testdata/consumers/* ]]; then echo stock; fi; }

# no_go_code is true of modules that do nothing but pin another project's
# program, as hack/tools does. One whose packages cannot be listed has code.
no_go_code() {
	local packages
	packages=$(go -C "$1" list ./... 2>/dev/null) && [[ -z $packages ]]
}

check_vet() {
	if no_go_code "$1"; then
		skip vet "$1" "no Go code"
	else
		check vet "$1" go -C "$1" vet "-tags=$(tags "$1")" ./...
	fi
}

check_lint() {
	if no_go_code "$1"; then
		skip lint "$1" "no Go code"
	elif [[ $1 == hack/envtest/* ]]; then
		skip lint "$1" "only starts another project's main"
	else
		check lint "$1" lint "$1"
	fi
}

check gofmt . formatted
check bash . scripts_parse
check paths . no_local_paths
for module in $(modules); do
	check_vet "$module"
	check tidy "$module" go -C "$module" mod tidy -diff
done
if ! $fast; then
	check config . tool golangci-lint config verify
	for module in $(modules); do check_lint "$module"; done
fi

echo
printf '%-8s %-36s %s\n' check module result
cat "$scratch/table"
passed=$(grep -c ' ok$' "$scratch/table" || true)
failed=$(grep -c ' failed$' "$scratch/table" || true)
echo "verify: $((passed + failed)) checks, $passed passed, $failed failed"
[[ $failed -eq 0 ]]
