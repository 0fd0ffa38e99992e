#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/verify.sh [-fast | -root]
#
# Checks everything about the checkout that needs no test run: formatting, vet,
# go.mod and go.sum, lint, script syntax, paths of this machine left in files, the
# words of the pages, and the rows that their claims about controller-runtime name.
# Files not yet added to git are checked too. A failed check does not stop the
# others; the exit status is 1 if any failed.
#
#   -fast    without golangci-lint, which the first run builds in a few minutes
#   -root    with golangci-lint for the root module alone, as hack/test.sh has it
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"

case "$*" in
'' | -fast | -root) lint=${1:-all} ;;
*) wrong "$*" ;;
esac

cd "$root"
files=$(mktemp)
trap 'rm -f "$files"' EXIT
passed=0 failed=()

# check runs a command. What it says is shown if it fails.
check() { # NAME COMMAND...
	local name=$1 said
	shift
	if said=$("$@" 2>&1); then
		passed=$((passed + 1))
	else
		failed+=("$name")
		printf 'FAILED %s: %s\n%s\n' "$name" "$*" "$said"
	fi
}

# list prints the files whose names match, those not in git yet included, but neither
# deleted nor ignored ones, nor links. Names end with a zero byte.
list() {
	local file
	git ls-files -z --cached --others --exclude-standard "$@" | while IFS= read -r -d '' file; do
		if [[ -f $file && ! -L $file ]]; then printf '%s\0' "$file"; fi
	done
}

gofmt_() {
	local said
	said=$(xargs -0 gofmt -l <"$files") && [[ -z $said ]] || { printf 'format these:\n%s\n' "$said" && return 1; }
}

# paths finds paths of the machine that a file was written on. They mean nothing on others.
paths() {
	local here=$root said
	if [[ -n ${HOME:-} && $HOME != / ]]; then here+="|${HOME%/}"; fi
	said=$(xargs -0 grep -nIE "(^|[^[:alnum:]_./-])(${here//./\\.})(/|[^[:alnum:]_.-]|$)" /dev/null <"$files" 2>&1 || true)
	[[ -z $said ]] || { echo "$said" && return 1; }
}

# actions finds those that are not pinned to a commit, with the version beside it.
actions() { ! grep -H 'uses:' .github/workflows/*.yml | grep -vE 'uses: [a-z-]+/[a-z-]+@[0-9a-f]{40} # v[0-9.]+$'; }

# stock finds sentences about plain controller-runtime whose comment names no row of TestStock.
stock() {
	local row missing=0
	while IFS= read -r row; do
		grep -qF "{\"$row\", " hack/e2e/stock_test.go && continue
		echo "no row of TestStock in hack/e2e/stock_test.go has the name $row, which a page refers to"
		missing=1
	done < <(xargs -0 grep -ohE 'TestStock/[a-z0-9-]+' /dev/null <"$files" | sed 's|TestStock/||' | sort -u)
	return "$missing"
}

# private_words are words of ours for which Kubernetes has a word of its own: pages use that one.
private_words='cluster-wide|cluster wide|for ever\b|\bheals?\b|\bhealed\b|ways in\b|way in\b|know first|kinds that may be absent'
private_words+='|live read|legacy server|tagged replace|late kinds|latekinds|\badopters\b|ways to stay fresh|with each way|it is not to be had'
private_words+='|who waits|\bof upstream'"'"'s\b|handler of owners|comes back cluster|with the provider\b|provider alone'
# words leaves out the targets of links and what is code: names and error texts are quoted as they are.
words() {
	local file status=0
	while IFS= read -r -d '' file; do
		sed -E 's/\]\([^)]*\)/]/g; s/`[^`]*`//g' "$file" | grep -niE "$private_words|\\bstock\\b" | sed "s|^|$file:|" && status=1
	done <"$files"
	return $status
}

list '*.go' >"$files"
check gofmt gofmt_
check 'pinned actions' actions
list '*.md' >"$files"
check 'sentences about stock' stock
list README.md CONTRIBUTING.md SECURITY.md DESIGN.md 'docs/*.md' >"$files"
check 'words of pages' words
list >"$files"
check paths paths
while IFS= read -r -d '' file; do check "$file" bash -n "$file"; done < <(list '*.sh' .ci/run)

check 'fresh.txt' hack/pack.sh -check
linter=(go tool "-modfile=$root/hack/tools/go.mod" golangci-lint)
[[ $lint == -fast ]] || check 'lint config' "${linter[@]}" config verify
# A go.mod in a testdata folder is a test's input and no module to check.
while IFS= read -r -d '' mod; do
	module=$(dirname "$mod") tags='' missing=''
	case /$module in
	# They import the fork's API, and build with stock by a tag. go mod tidy knows no tags: -e lets packages be missing.
	/examples*) tags=stock missing=-e ;;
	*/testdata/*) continue ;;
	esac
	cd "$root/$module"
	check "tidy $module" go mod tidy $missing -diff
	list '*.go' >"$files"
	if [[ -s $files ]]; then # the others pin other projects' programs
		check "vet $module" go vet "-tags=$tags" ./...
		case $lint$module in # those in hack/envtest only start another project's main
		-fast* | -root[!.]* | allhack/envtest/*) ;;
		*) check "lint $module" "${linter[@]}" run --allow-serial-runners --build-tags "$tags" ./... ;;
		esac
	fi
done < <(list go.mod '*/go.mod')
cd "$root"
((passed > 0)) || die 'no check was run'
if ((${#failed[@]} > 0)); then
	printf -v names '%s; ' "${failed[@]}"
	die "$passed checks passed, ${#failed[@]} failed: ${names%; }"
fi
echo "verify: all $passed checks passed"
