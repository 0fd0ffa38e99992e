# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash
#
# The part of hack/envtest.sh that knows nothing of API servers: a child that
# can be ended together with its children, and a lock between processes. To be
# sourced after hack/lib.sh; the caller's EXIT trap calls end_job and unlock.

# job is the process id of what `bounded` runs, empty between runs.
job=''

# bounded SECONDS LOG COMMAND... runs the command with its output appended to
# LOG and returns its status, or 124 once the seconds are over (0: no limit).
#
# The command runs in the background, and the loop sleeps in short steps,
# because bash runs a trap only between two foreground commands: a signal must
# not wait for minutes of compiling. `set -m` would give the command a process
# group of its own, but it also takes the terminal away from the caller.
bounded() {
	local limit=$1 log=$2 start=$SECONDS status=0
	shift 2
	"$@" >>"$log" 2>&1 </dev/null &
	job=$!
	while kill -0 "$job" 2>/dev/null; do
		if ((limit > 0 && SECONDS - start >= limit)); then
			end_job
			return 124
		fi
		sleep 0.2
	done
	wait "$job" || status=$?
	job=''
	return $status
}

# end_job ends what `bounded` runs, and all that came from it: the go command
# leaves its compilers running when it is killed.
end_job() {
	[[ -n $job ]] || return 0
	# shellcheck disable=SC2046 # one word a process
	kill -TERM $(family "$job") 2>/dev/null || true
	wait "$job" 2>/dev/null || true
	job=''
}

# family prints the ids of a process and of all its descendants.
family() {
	{ ps -A -o pid= -o ppid= 2>/dev/null || true; } | awk -v top="$1" '
		{ parent[$1] = $2 }
		END {
			print top
			for (pid in parent) {
				if (pid == top) continue
				for (up = pid; (up in parent) && up != top; up = parent[up]) {}
				if (up == top) print pid
			}
		}'
}

# held is the lock that this process holds, empty if none.
held=''

# lock FILE returns once this process holds the lock. The lock is a symbolic
# link to the holder's process id: made in one step with its content, so that
# nobody ever sees a lock without a holder. The lock of a dead process is taken
# over. flock would notice that by itself, but macOS has none.
lock() {
	local holder told=''
	until take "$1"; do
		holder=$(readlink "$1" 2>/dev/null) || continue # just released
		if ! alive "$holder"; then
			say "process $holder died while it held $1"
			break_lock "$1"
			continue
		fi
		if [[ $told != "$holder" ]]; then
			say "waiting for process $holder, which holds $1"
			told=$holder
		fi
		sleep 0.5
	done
	held=$1
}

unlock() {
	[[ -n $held ]] || return 0
	rm -f "$held"
	held=''
}

take() { ln -sn "$$" "$1" 2>/dev/null; }

alive() { kill -0 "$1" 2>/dev/null || [[ -d /proc/$1 ]]; }

# break_lock removes the lock of a dead process. Two processes that see the
# same dead holder must not both remove: the second would remove the lock that
# the first has taken meanwhile. So only one at a time looks and removes.
break_lock() {
	local guard=$1.guard holder
	if ! take "$guard"; then
		sleep 0.5
		holder=$(readlink "$guard" 2>/dev/null) || return 0
		alive "$holder" || die "process $holder died while it took over $1: remove $guard"
		return 0
	fi
	holder=$(readlink "$1" 2>/dev/null) || holder=$$
	alive "$holder" || rm -f "$1"
	rm -f "$guard"
}
