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

# no_arguments is for a script that takes none. -h prints the comment at its top.
no_arguments() {
	case "$*" in
	'') ;;
	-h | --help)
		sed -n '4,/^set /s/^# \{0,1\}//p' "$0"
		exit
		;;
	*)
		printf 'error: unexpected %s: %s takes no arguments\n' "$*" "$0" >&2
		exit 2
		;;
	esac
}

# dev builds hack/dev if its sources have changed, and replaces the script by it.
dev() {
	command -v go >/dev/null || die "no go command: install Go first, see go.dev/dl"
	mkdir -p "$root/.cache"
	go -C "$root" build -o "$root/.cache/dev" ./hack/dev
	exec "$root/.cache/dev" "$root" "$@"
}
