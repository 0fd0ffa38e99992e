#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
#
# usage: hack/tag.sh VERSION
#
# Makes a release of the Go modules: a commit in which the nested modules require VERSION of each
# other and of the root module, and a tag for each module that others can get: VERSION, and
# NAME/VERSION for a nested one. All modules have the same version. Modules below hack/ and
# examples/ are not released. Pushes nothing, and prints the command that does.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/lib.sh"
offer_help "$@"
(($# == 1)) || wrong "$*"
version=$1
[[ $version =~ ^v[01]\.[0-9]+\.[0-9]+(-[a-z]+\.[0-9]+)?$ ]] || die "$version is not like v0.1.0 or v0.1.0-rc.1"
cd "$root"
[[ -z $(git status --porcelain) ]] || die "there are changes that are not committed"
grep -q "^## ${version%%-*}\$" CHANGELOG.md || die "CHANGELOG.md has no heading '## ${version%%-*}': rename '## Unreleased'"

mods=$(git ls-files go.mod '*/go.mod')
tags=() edits=()
for mod in $mods; do
	case $mod in hack/* | examples/*) continue ;; esac
	prefix=${mod%go.mod}
	tags+=("$prefix$version")
	edits+=("$(awk '$1 == "module" { print $2 }' "$mod")@$version")
done
for tag in "${tags[@]}"; do
	if git rev-parse -q --verify "refs/tags/$tag" >/dev/null; then die "the tag $tag is there already"; fi
done

for mod in $mods; do
	for edit in "${edits[@]}"; do
		if grep -q "^[[:space:]]*\(require \)\{0,1\}${edit%@*} v" "$mod"; then
			go mod edit -require="$edit" "$mod"
		fi
	done
done
git diff --quiet || git commit -qam "Release $version

The nested modules require $version of each other and of the root module."
for tag in "${tags[@]}"; do
	git tag -a -m "$tag" "$tag"
	say "tagged $tag"
done
echo "git push --atomic origin HEAD:main ${tags[*]}"
