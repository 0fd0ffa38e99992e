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

# say prints a line of progress. It goes to stderr, as stdout is for results.
say() { printf '==> %s\n' "$*" >&2; }

# die says why and ends the script.
die() {
	printf 'error: %s\n' "$*" >&2
	exit 1
}

# usage prints the comment at the top of the script.
usage() { sed -n '4,/^set /s/^# \{0,1\}//p' "$0"; }

# offer_help is for the script's arguments, and ends it if it is asked for help.
offer_help() {
	case "$*" in -h | --help) usage && exit ;; esac
}

# wrong ends the script because of its arguments.
wrong() {
	printf 'error: unexpected %s\n' "$*" >&2
	usage >&2
	exit 2
}
