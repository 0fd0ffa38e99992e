#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# Prints a folder that holds kube-apiserver, etcd and a kubectl (which may be a
# placeholder), ready to be KUBEBUILDER_ASSETS. See usage below for the
# arguments, and hack/envtest/README.md for where they come from.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
source "$root/hack/envtest/process.sh"

usage() {
	cat <<'END'
usage: hack/envtest.sh latest             a server of Kubernetes 1.30 or newer
       hack/envtest.sh legacy             a server of Kubernetes 1.26 to 1.29
       hack/envtest.sh legacy-store DIR   makes DIR a setup-envtest store that has the
                                          legacy server as 1.28.0, and prints what to export

The first two print a folder with kube-apiserver and etcd: $KUBEBUILDER_ASSETS if
it fits, else what setup-envtest has stored, else what an earlier run has cached,
else a download by setup-envtest, else a build from source (minutes, once).

  FRESHMAPPER_CACHE              where to cache, default ~/.cache/freshmapper
  FRESHMAPPER_ENVTEST_OFFLINE=1  no download by setup-envtest; a build may still
                                 ask the Go module proxy for modules not yet cached
END
}

main() {
	case "${1:-} $#" in
	'latest 1' | 'legacy 1')
		find_assets "$1"
		printf '%s\n' "$assets"
		;;
	'legacy-store 2')
		find_assets legacy
		make_store "$2"
		;;
	'-h 1' | '--help 1') usage ;;
	*)
		usage >&2
		exit 2
		;;
	esac
}

# find_assets MODE sets assets, the folder. What is there already is used
# without a lock: a folder appears in the cache complete, or not at all.
find_assets() {
	select_mode "$1"
	given || stored || obtain
}

# select_mode sets what the mode asks for: pin, the version of the source, and
# the range of minor versions that will do, oldest to newest (range, in words).
select_mode() {
	mode=$1 assets=''
	case $mode in
	latest) oldest=30 newest=999 range='1.30 or newer' ;;
	legacy) oldest=26 newest=29 range='1.26 to 1.29' ;;
	esac
	pin=$(pinned "$mode" k8s.io/kubernetes)
	platform=$(platform)
	cache=${FRESHMAPPER_CACHE:-${XDG_CACHE_HOME:-$(home)/.cache}/freshmapper}/envtest
}

# pinned FOLDER MODULE prints the version, without the v, that the go.mod of
# hack/envtest/FOLDER requires.
pinned() {
	awk -v module="$2" '
		$1 == "replace" { exit }
		$1 == "require" { $1 = $2; $2 = $3 }
		$1 == module { print substr($2, 2); found = 1; exit }
		END { exit !found }' "$root/hack/envtest/$1/go.mod" ||
		die "hack/envtest/$1/go.mod does not require $2"
}

# platform prints GOOS-GOARCH of this machine. It does not ask Go, which is
# not needed where the servers are there already.
platform() {
	local arch
	arch=$(uname -m)
	case $arch in
	x86_64 | amd64) arch=amd64 ;;
	aarch64 | arm64) arch=arm64 ;;
	esac
	case $(uname -s) in
	Darwin) echo "darwin-$arch" ;;
	*) echo "linux-$arch" ;;
	esac
}

home() {
	[[ -n ${HOME:-} ]] || die "HOME is not set: set FRESHMAPPER_CACHE"
	printf '%s\n' "$HOME"
}

# given, stored and cached set assets, or fail, to what is there already.

given() {
	[[ -n ${KUBEBUILDER_ASSETS:-} ]] || return 1
	if fits "$KUBEBUILDER_ASSETS"; then
		assets=$(cd "$KUBEBUILDER_ASSETS" && pwd)
		return
	fi
	say "KUBEBUILDER_ASSETS=$KUBEBUILDER_ASSETS is not used: $why"
	return 1
}

stored() {
	local store
	store=$(data_home)/$(store_path)
	newest_of "$store" || cached
}

cached() {
	local built=$cache/$pin-$platform
	if fits "$built"; then
		assets=$built
		return
	fi
	newest_of "$cache/k8s"
}

# data_home and store_path: setup-envtest keeps version V in
# <data_home>/<store_path>/V-<platform>, as sigs.k8s.io/controller-runtime's
# envtest.SetupEnvtestDefaultBinaryAssetsDirectory has it.

data_home() {
	case $platform in
	darwin-*) printf '%s\n' "${HOME:-}" ;;
	*) printf '%s\n' "${XDG_DATA_HOME:-${HOME:-}/.local/share}" ;;
	esac
}

store_path() {
	case $platform in
	darwin-*) echo 'Library/Application Support/io.kubebuilder.envtest/k8s' ;;
	*) echo kubebuilder-envtest/k8s ;;
	esac
}

# newest_of STORE sets assets to the newest version there that fits.
newest_of() {
	local name
	[[ -d $1 ]] || return 1
	while IFS= read -r name; do
		if fits "$1/$name"; then
			assets=$1/$name
			return
		fi
	done < <(cd "$1" && ls -1 | { grep -- "-$platform\$" || true; } | sort -t. -k1,1nr -k2,2nr -k3,3nr)
	return 1
}

# fits DIR is true if both programs are there, run, and have a version that the
# mode asks for. Otherwise it sets why.
fits() {
	local program version
	for program in kube-apiserver etcd; do
		why="no $program that runs"
		version=$("$1/$program" --version 2>/dev/null </dev/null) || return 1
		if [[ $program == kube-apiserver ]]; then
			why="its version is '$version', and $mode means $range"
			[[ $version =~ v1\.([0-9]+)\. ]] || return 1
			((BASH_REMATCH[1] >= oldest && BASH_REMATCH[1] <= newest)) || return 1
		fi
	done
}

# obtain sets assets to a new folder in the cache. One process at a time does
# so; the others wait, and then find what it made.
obtain() {
	command -v go >/dev/null ||
		die "no Go on PATH: install Go $(awk '$1 == "go" { print $2 }' "$root/hack/envtest/$mode/go.mod") or newer, or set KUBEBUILDER_ASSETS to a folder with kube-apiserver and etcd"
	open_cache
	lock "$cache/lock"
	cached && return
	open_temp
	download || build
}

open_cache() {
	mkdir -p "$cache" || die "cannot make the cache folder $cache"
	cache=$(cd "$cache" && pwd)
}

# open_temp makes temp, a folder on the file system of the cache, so that what
# is complete moves there in one step. The folders of dead processes go.
open_temp() {
	local old
	for old in "$cache"/.tmp.*; do
		if [[ -d $old ]] && ! alive "${old##*.}"; then remove "$old"; fi
	done
	temp=$cache/.tmp.$$
	mkdir -p "$temp/work" "$temp/out"
}

# remove deletes a folder: setup-envtest leaves folders without write permission.
remove() {
	chmod -R u+w "$1" 2>/dev/null || true
	rm -rf "$1"
}

# tidy_up leaves nothing half-made behind, whatever ended the script.
tidy_up() {
	end_job
	if [[ -n $temp ]]; then remove "$temp"; fi
	unlock
}

# download sets assets, or fails, to the newest patch of the pin's minor
# version that setup-envtest offers. It downloads into temp: in the store that
# it shares with other projects an interrupted run leaves a broken version.
download() {
	if [[ -n ${FRESHMAPPER_ENVTEST_OFFLINE:-}${ENVTEST_INSTALLED_ONLY:-} ]]; then
		say "no download: FRESHMAPPER_ENVTEST_OFFLINE or ENVTEST_INSTALLED_ONLY is set"
		return 1
	fi
	if ! fetch "${pin%.*}.x"; then
		say "setup-envtest has nothing to download, or there is no network"
		return 1
	fi
	mkdir -p "$cache/k8s"
	chmod -R u+w "$downloaded" # a folder without write permission does not move
	assets=$cache/k8s/${downloaded##*/}
	remove "$assets"
	mv "$downloaded" "$assets"
}

# fetch sets downloaded, a folder in temp. It asks for the index before it
# downloads, with seconds to answer: a network that swallows packets costs no
# more than that.
fetch() {
	local tool=$temp/setup-envtest log=$temp/download.log
	say "asking setup-envtest for Kubernetes $1"
	online "$log" || return 1
	compile setup sigs.k8s.io/controller-runtime/tools/setup-envtest "$tool" '-s -w' "$log" 60 || return 1
	bounded 5 "$log" "$tool" --bin-dir "$temp/download" list "$1" || return 1
	grep -q "(available).*${platform/-//}" "$log" || return 1
	say "downloading"
	TMPDIR=$temp/work bounded 600 "$log" "$tool" --bin-dir "$temp/download" --use-env=false use -p path "$1" || return 1
	downloaded=$(echo "$temp/download/k8s"/*-"$platform")
	fits "$downloaded"
}

# online LOG is true if the host of setup-envtest's index answers, or if a proxy
# has to be asked. Without it an offline machine would compile setup-envtest,
# a minute where Go's build cache is empty, to learn that there is no network.
online() {
	[[ -n ${HTTPS_PROXY:-}${https_proxy:-} ]] ||
		bounded 3 "$1" bash -c ': </dev/tcp/raw.githubusercontent.com/443'
}

# build sets assets to the pinned versions, built from source.
build() {
	local target=$cache/$pin-$platform etcd
	local log=$target.log
	etcd=$(pinned etcd go.etcd.io/etcd/server/v3)
	: >"$log"
	say "building kube-apiserver $pin and etcd $etcd from source: minutes, but only once (log: $log)"
	compile "$mode" k8s.io/kubernetes/cmd/kube-apiserver "$temp/out/kube-apiserver" "$(version_flags)" "$log" 0 ||
		build_failed kube-apiserver "$log"
	compile etcd . "$temp/out/etcd" '-s -w' "$log" 0 || build_failed etcd "$log"
	placeholder "$temp/out/kubectl"
	fits "$temp/out" || die "what was built from hack/envtest/$mode does not fit: $why"
	remove "$target"
	mv "$temp/out" "$target"
	assets=$target
	say "built $assets in $SECONDS s"
}

# compile FOLDER PACKAGE OUTPUT LDFLAGS LOG SECONDS builds a package with the
# versions that hack/envtest/FOLDER pins, whatever the caller's Go settings.
compile() {
	CGO_ENABLED=0 GOOS=${platform%-*} GOARCH=${platform#*-} GOTMPDIR=$temp/work \
		bounded "$6" "$5" go -C "$root/hack/envtest/$1" build -mod=readonly -buildvcs=false \
		-trimpath -ldflags "$4" -o "$3" "$2"
}

# version_flags make the server report the version that it was built from.
version_flags() {
	local var=k8s.io/component-base/version minor=${pin#*.}
	echo "-s -w -X $var.gitVersion=v$pin -X $var.gitMajor=${pin%%.*} -X $var.gitMinor=${minor%%.*}"
}

build_failed() {
	tail -n 20 "$2" >&2
	die "building $1 for $mode failed: the log is $2"
}

# placeholder FILE writes what stands for kubectl, which envtest looks for but
# runs only if a test asks for it.
placeholder() {
	cat >"$1" <<'END'
#!/bin/sh
echo "this is not kubectl but a placeholder that hack/envtest.sh wrote: install kubectl to use it" >&2
exit 1
END
	chmod 755 "$1"
}

# make_store DIR puts links to assets where a test that asks envtest to
# download 1.28.0 looks first, and prints what makes it look there. With all
# three files in place envtest asks no server for anything. What is there
# already stays: DIR may be a store in use.
make_store() {
	local dir version program
	mkdir -p "$1" || die "cannot make the folder $1"
	dir=$(cd "$1" && pwd)
	version=$dir/$(store_path)/1.28.0-$platform
	mkdir -p "$version"
	for program in kube-apiserver etcd kubectl; do
		[[ -x $version/$program ]] && continue
		if [[ -x $assets/$program ]]; then
			ln -sfn "$assets/$program" "$version/$program"
		else
			placeholder "$version/$program"
		fi
	done
	print_exports "$dir"
}

# print_exports: on macOS only HOME leads to the store, and Go's caches should
# not move with it.
print_exports() {
	case $platform in
	darwin-*)
		printf 'export GOPATH=%q GOMODCACHE=%q GOCACHE=%q\n' \
			"$(go env GOPATH)" "$(go env GOMODCACHE)" "$(go env GOCACHE)"
		printf 'export HOME=%q\n' "$1"
		;;
	*) printf 'export XDG_DATA_HOME=%q\n' "$1" ;;
	esac
}

temp=''
trap tidy_up EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM
# In braces: bash reads a script while it runs it, and a build takes long enough
# for somebody to edit this file.
{
	main "$@"
	exit
}
