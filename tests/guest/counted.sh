# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced after lib.sh by the observability tests. Turns the output of `seeing`, debugfs and a trace, which are in $out,
# into lines that can be compared.

tracing=/sys/kernel/tracing
# shellcheck disable=SC2034 # used by the sourcing tests
stats=/sys/kernel/debug/peerdma/stats
out=/tmp/seeing

# numbers KEY=N...: prints reads, writes, direct, near and host bytes, errors, refusals, and refusals by reason. Forks
# nothing.
numbers() {
	local -A n=()
	local word i line
	for word; do
		[[ $word != *[!a-z0-9=-]* ]] || continue
		n[${word%%=*}]=${word##*=}
	done
	line="${n[reads]} ${n[writes]} ${n[direct]} ${n[near]} ${n[host]} ${n[errors]} ${n[refused]}"
	for ((i = 1; i < 64; i++)); do
		[ -z "${n[refused-$i]:-}" ] || line+=" $i:${n[refused-$i]}"
	done
	echo "$line"
}
# counters FILE said|fdinfo: numbers of one process
counters() {
	local kind key n words=()
	while read -r kind key n; do
		[ "$kind" != "$2" ] || words+=("${key%-bytes}=$n")
	done <"$out/$1"
	numbers "${words[@]}"
}
# entry REGEX: numbers of the debugfs lines that match
entry() {
	local line words
	while read -r line; do
		[[ $line =~ ^$1 ]] || continue
		read -ra words <<<"${line%% comm=*}"
		numbers "${words[@]}"
	done <$out/debugfs
}
got() { seeing get "$out/$1" "${@:2}"; }

# traced ACT...: traces a process, $pid, that makes these requests; fills $events and $nr. first, last NAME: the first
# or last event of that name.
traced() {
	local trace=$tracing/instances/seeing line
	mkdir $trace
	echo 1 >$trace/events/peerdma/enable
	seeing "$@" >$out/traced &
	pid=$!
	wait $pid
	echo 0 >$trace/tracing_on
	cat $trace/trace >$out/trace
	rmdir $trace
	declare -gA events=() nr=()
	while read -r line; do
		[[ $line =~ peerdma_([a-z]+):\ (.*) ]] || continue
		events[${BASH_REMATCH[1]}]+="${BASH_REMATCH[2]}"$'\n'
		nr[${BASH_REMATCH[1]}]=$((${nr[${BASH_REMATCH[1]}]:-0} + 1))
	done <$out/trace
}
first() { echo "${events[$1]%%$'\n'*}"; }
last() { tail -n 1 <<<"${events[$1]%$'\n'}"; }

# --- peerdma witness --json; its output is in a file of $out
witness() { peerdma witness --json "$@" 2>/dev/null; }
# seen N [NAME]: of claim N, direction, verdict, requests, bytes of each kind, the first leaf and its bytes
seen() {
	local keys=(direction verdict requests direct near host unmoved leaves/0/name leaves/0/bytes)
	got "${2:-witness}.json" "${keys[@]/#//files/$1/}"
}
