# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What the scripts of this folder share. Source it right after `set -euo pipefail`:
#
#	source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
#
# It sets root, the folder of the checkout, and changes nothing else: not the
# working folder, no trap. It keeps to bash 3.2, which is what macOS has.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd -P)

# A go.work above the checkout would change what every module resolves to.
export GOWORK=off

_bold='' _red='' _plain=''
if [[ -t 2 && -z ${NO_COLOR:-} ]]; then
	_bold=$'\e[1m' _red=$'\e[31m' _plain=$'\e[0m'
fi

# say prints a line of progress. It goes to stderr, because the stdout of some
# scripts is their result (envtest.sh prints a folder).
say() { printf '%s==>%s %s\n' "$_bold" "$_plain" "$*" >&2; }

# die says why and ends the script.
die() {
	printf '%serror:%s %s\n' "$_red" "$_plain" "$*" >&2
	exit 1
}

# files prints the files of the checkout whose names match any of the patterns
# (all, without one), one a line: those in git and those not yet added, but
# neither ignored nor deleted ones.
files() {
	local file
	(cd "$root" && git -c core.quotePath=false ls-files --cached --others --exclude-standard -- "$@") |
		sort -u |
		while IFS= read -r file; do
			if [[ -f $root/$file ]]; then printf '%s\n' "$file"; fi
		done
}

# modules prints the folder of each Go module of ours, relative to root, "."
# first. A go.mod in a testdata folder is a test's input and not a module to
# check, but for testdata/consumers, which are programs that must build.
modules() {
	local file
	files ':(glob)**/go.mod' | while IFS= read -r file; do
		case $file in
		go.mod) echo . ;;
		testdata/consumers/*) dirname "$file" ;;
		testdata/* | */testdata/*) ;;
		*) dirname "$file" ;;
		esac
	done | LC_ALL=C sort
}

# tool runs a program that hack/tools/go.mod pins, in the current folder. The
# go command builds it once and keeps it in its build cache.
tool() { go tool -modfile="$root/hack/tools/go.mod" "$@"; }
