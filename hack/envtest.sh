#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/envtest.sh latest             a server of Kubernetes 1.30 or newer
#        hack/envtest.sh legacy             a server of Kubernetes 1.26 to 1.29
#        hack/envtest.sh legacy-store DIR   makes DIR a setup-envtest store that has the
#                                           legacy server as 1.28.0, and prints what to export
#
# The first two print a folder with kube-apiserver and etcd: $KUBEBUILDER_ASSETS if
# it fits, else what setup-envtest has stored, else what an earlier run has cached,
# else a download by setup-envtest, else a build from source (minutes, once).
#
#   FRESHMAPPER_CACHE              where to cache, default ~/.cache/freshmapper
#   FRESHMAPPER_ENVTEST_OFFLINE=1  no download by setup-envtest; a build may still
#                                  ask the Go module proxy for modules not yet cached
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"

# fits checks that both programs of a folder run, and that the server has a version that is
# asked for. It says why not.
fits() { # FOLDER
	local said program
	for program in etcd kube-apiserver; do
		said=$("$1/$program" --version 2>/dev/null </dev/null) || { echo "it has no $program that runs" && return 1; }
	done
	[[ $said =~ v1\.([0-9]+)\. ]] && ((BASH_REMATCH[1] >= oldest && BASH_REMATCH[1] <= newest)) ||
		{ echo "its version is \"$said\", and $mode means $means" && return 1; }
}

# newest_in prints the newest version in a store that fits.
newest_in() { # FOLDER
	local name
	while IFS= read -r name; do
		fits "$1/$name" >/dev/null && echo "$1/$name" && return
	done < <(cd "$1" 2>/dev/null && ls -d ./*-"$platform" 2>/dev/null | cut -c3- | sort -t. -k1,1nr -k2,2nr -k3,3nr)
	return 1
}

# find_servers prints a folder that is there already. A folder appears in the cache complete,
# or not at all, so that nobody needs a lock to use it.
find_servers() {
	local why
	if [[ -n ${KUBEBUILDER_ASSETS:-} ]]; then
		why=$(fits "$KUBEBUILDER_ASSETS") && (cd "$KUBEBUILDER_ASSETS" && pwd) && return
		say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS is not used: $why"
	fi
	newest_in "$data/$store" || newest_in "$cache"
}

# lock waits until no other run obtains servers, and makes the folder to do it in. Where there is
# no flock, as on macOS, two runs at once do it twice.
lock() {
	local left
	mkdir -p "$cache" && [[ -w $cache ]] || die "$cache is no folder to write to: set FRESHMAPPER_CACHE"
	if command -v flock >/dev/null; then
		exec 9>"$cache/lock"
		flock -n 9 || { say 'waiting for another run, which obtains API servers' && flock 9; }
		for left in "$cache"/.tmp.*; do clear_away "$left"; done # by runs that were killed
	fi
	temp=$(mktemp -d "$cache/.tmp.XXXXXX")
	trap 'clear_away "$temp"' EXIT
	trap 'echo "error: interrupted" >&2; exit 130' INT TERM HUP
}

# clear_away removes a folder, with what setup-envtest has made read-only in it.
clear_away() { [[ ! -e $1 ]] || { chmod -R u+w "$1" && rm -rf "$1"; }; }

# install moves a folder into the cache.
install() { # FOLDER NAME
	clear_away "$cache/$2"
	chmod u+w "$1" # it does not move otherwise
	mv "$1" "$cache/$2"
}

# download lets setup-envtest fetch the newest patch of the pin's minor version, into a folder
# of its own: in the store that it shares with other projects an interrupted run leaves a
# broken version. An offline machine should not compile it, which takes a minute, to learn
# that there is no network.
download() {
	local dir
	[[ -z ${FRESHMAPPER_ENVTEST_OFFLINE:-} ]] || { say 'no download: FRESHMAPPER_ENVTEST_OFFLINE is set' && return 1; }
	say "asking setup-envtest for Kubernetes ${pin%.*}.x"
	! command -v curl >/dev/null || curl -s --connect-timeout 3 --max-time 20 -o /dev/null https://raw.githubusercontent.com ||
		{ say 'no download: raw.githubusercontent.com does not answer' && return 1; }
	TMPDIR=$temp CGO_ENABLED=0 go -C "$root/hack/envtest/setup" run -mod=readonly \
		sigs.k8s.io/controller-runtime/tools/setup-envtest --bin-dir "$temp" --use-env=false use "${pin%.*}.x" >&2 || return
	dir=$(newest_in "$temp/k8s") || { say 'what setup-envtest downloaded does not fit' && return 1; }
	install "$dir" "${dir##*/}"
}

# build builds the pinned versions from source, whatever the caller's Go settings. The server
# reports the version that it was built from.
build() {
	local to=$cache/$pin-$platform why version=k8s.io/component-base/version numbers begun=$SECONDS
	IFS=. read -ra numbers <<<"$pin"
	say "building kube-apiserver $pin and etcd $(pinned etcd go.etcd.io/etcd/server/v3) from source: minutes, but only once (log: $to.log)"
	{
		compile "$mode" k8s.io/kubernetes/cmd/kube-apiserver kube-apiserver \
			"-X $version.gitVersion=v$pin -X $version.gitMajor=${numbers[0]} -X $version.gitMinor=${numbers[1]}" && compile etcd . etcd
	} >"$to.log" 2>&1 || die "build the $mode API server: see $to.log: $(tail -n 1 "$to.log")"
	placeholder "$temp/out/kubectl"
	why=$(fits "$temp/out") || die "what was built from hack/envtest/$mode is of no use: $why"
	install "$temp/out" "$pin-$platform"
	say "built $to in $((SECONDS - begun)) s"
}

compile() { # FOLDER PACKAGE NAME [FLAGS]
	GOOS='' GOARCH='' CGO_ENABLED=0 GOTMPDIR=$temp go -C "$root/hack/envtest/$1" \
		build -mod=readonly -buildvcs=false -trimpath -ldflags "-s -w ${4:-}" -o "$temp/out/$3" "$2"
}

# pinned prints the version, without the v, that a go.mod of hack/envtest requires.
pinned() { # FOLDER MODULE
	sed -nE "s,^(require)?[[:space:]]*$2 v([^ ]+).*,\2,p" "$root/hack/envtest/$1/go.mod"
}

# placeholder writes what stands for kubectl, which envtest looks for but runs only if a test
# asks for it.
placeholder() { # FILE
	printf '#!/bin/sh\necho "this is not kubectl but a placeholder that hack/envtest.sh wrote: install kubectl to use it" >&2\nexit 1\n' >"$1"
	chmod +x "$1"
}

# fill puts links to the legacy server where a test that asks envtest to download 1.28.0 looks
# first, and prints what makes it look there. With all three files in place envtest asks no
# server for anything. What is there already stays: the folder may be a store in use.
fill() { # FOLDER
	local assets to name
	assets=$("$0" legacy)
	mkdir -p "$1/$store"
	to=$(cd "$1" && pwd)/$store/1.28.0-$platform
	mkdir -p "$to"
	for name in kube-apiserver etcd kubectl; do
		[[ ! -e $to/$name ]] || continue
		rm -f "$to/$name" # a link to nowhere
		if [[ -e $assets/$name ]]; then ln -s "$assets/$name" "$to/$name"; else placeholder "$to/$name"; fi
	done
	if [[ $variable == HOME ]]; then # Go's caches should not move with it
		for name in GOPATH GOMODCACHE GOCACHE; do printf 'export %s=%q\n' $name "$(go env $name)"; done
	fi
	printf 'export %s=%q\n' $variable "$(cd "$1" && pwd)"
}

case $* in
-h | --help) usage && exit ;;
latest) mode=$1 means='1.30 or newer' oldest=30 newest=999 ;;
legacy) mode=$1 means='1.26 to 1.29' oldest=26 newest=29 ;;
'legacy-store '?*) (($# == 2)) || wrong "$*" ;;
*) wrong "$*" ;;
esac
platform=$(go env GOHOSTOS GOHOSTARCH) || die "no go command: install Go first, see go.dev/dl"
platform=${platform/$'\n'/-}
cache=${FRESHMAPPER_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/freshmapper}/envtest
# Where setup-envtest keeps what it has downloaded, version V in a folder V-$platform, as
# controller-runtime's envtest.SetupEnvtestDefaultBinaryAssetsDirectory has it.
data=${XDG_DATA_HOME:-$HOME/.local/share} store=kubebuilder-envtest/k8s variable=XDG_DATA_HOME
if [[ $platform == darwin-* ]]; then
	data=$HOME store='Library/Application Support/io.kubebuilder.envtest/k8s' variable=HOME
fi
if [[ $1 == legacy-store ]]; then
	fill "$2"
	exit
fi
if ! find_servers; then
	pin=$(pinned "$mode" k8s.io/kubernetes)
	lock
	newest_in "$cache" || { { download || build; } && newest_in "$cache"; }
fi
