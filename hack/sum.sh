# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# What a run of hack/test.sh came to. It is sourced after lib.sh, and needs gotestsum in .cache.

# sum_up prints a line for each part, and for each test that failed or was skipped. It fails
# unless all is well; the last line says the same. The folder has a file NAME.part for each
# part: its name, exit status and seconds, with tabs between. While the part runs there is
# only the name. NAME.1.json and so on are what its runs of go test said. The reason is why
# the run has ended early.
sum_up() { # FOLDER [REASON]
	local file name status seconds verdict said passed failed skipped parts=0 broken='' good=false
	printf '\n%-52s %-18s %8s\n' part result seconds
	for file in "$1"/*.part; do
		[[ -e $file ]] || continue # there is none
		IFS=$'\t' read -r name status seconds <"$file"
		if [[ -z $status ]]; then
			verdict=UNFINISHED
		elif [[ $status != 0 ]]; then
			verdict="FAILED ($status)"
		elif [[ -e ${file%.part}.1.json ]] && ! grep -q '"Test":' "${file%.part}".*.json; then # go test passes if a pattern matches nothing
			verdict='FAILED (no tests)'
		else
			verdict=ok
		fi
		printf '%-52s %-18s %8s\n' "$name" "$verdict" "$seconds"
		parts=$((parts + 1))
		[[ $verdict == ok ]] || broken+="; $name"
	done
	said=$("$root/.cache/gotestsum" --raw-command --format none --ignore-non-json-output-lines -- sh -c 'cat "$0"/*.json 2>/dev/null; true' "$1")
	printf '%s\n' "${said%$'\n'*}"
	said=${said##*$'\n'} # DONE 12 tests, 1 skipped, 2 failures in 0.1s
	passed=$(cat "$1"/*.json 2>/dev/null | grep -c '"Action":"pass".*"Test":' || true)
	failed=$(sed -n 's/.* \([0-9]*\) failure.*/\1/p' <<<"$said") skipped=$(sed -n 's/.* \([0-9]*\) skipped.*/\1/p' <<<"$said")
	if [[ -n ${2:-} ]]; then
		verdict=$2
	elif ((parts == 0)); then
		verdict='NO PART was run'
	elif [[ -n $broken ]]; then
		verdict="FAILED: ${broken#; }"
	elif ((failed > 0)); then # though go test passed
		verdict='tests FAILED'
	else
		verdict="all $parts parts are ok" good=true
	fi
	printf '\n%d passed, %d failed, %d skipped; %s\n' "$passed" "${failed:-0}" "${skipped:-0}" "$verdict"
	$good
}
