#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The peerdma command reports output that could not be written: of each subcommand, help, version, the bash script,
# JSON, and files written by name. It does not wait for input that it does not read.
# Conditions are evaluated by judge().
# shellcheck disable=SC2016
. "$(dirname "$0")/../tap.sh"
temporary
tool=$build/bin/peerdma

# judge NAME CONDITION...
judge() { if "${@:2}"; then ok "$1"; else not_ok "$1" "status $status: $(head -c 300 "$tmp/err")"; fi; }

# ask WORD...: sets status; output in out and err
ask() {
	timeout 20 "$tool" "$@" >"$tmp/out" 2>"$tmp/err" </dev/null
	status=$?
}
# lost ERRNO: it reported the lost output in one line
lost() { [ "$status" = 1 ] && [ "$(cat "$tmp/err")" = "peerdma: cannot write to standard output: $1" ]; }

for words in --help --version help "help cp" completion "rules check" "rules check --json" stat "stat --json" topo "topo --json" \
	"topo --dot"; do
	# shellcheck disable=SC2086 # words
	ask $words
	judge "$words: it has something to say" [ "$status:$([ -s "$tmp/out" ] && echo some)" = 0:some ]
	# shellcheck disable=SC2086
	timeout 20 "$tool" $words >/dev/full 2>"$tmp/err"
	status=$?
	judge "$words: the disk is full" lost "No space left on device (ENOSPC)"
	# shellcheck disable=SC2086
	timeout 20 "$tool" $words >&- 2>"$tmp/err"
	status=$?
	judge "$words: standard output is closed" lost "Bad file descriptor (EBADF)"
done
for name in $("$tool" --help | sed -n '/^Subcommands:/,$s/^  \([a-z]*\) .*/\1/p'); do
	timeout 20 "$tool" "$name" --help >/dev/full 2>"$tmp/err"
	status=$?
	judge "$name --help: the disk is full" lost "No space left on device (ENOSPC)"
done
# The state of the machine may be good or bad; a full disk has another status.
timeout 60 "$tool" check --json >/dev/full 2>"$tmp/err"
status=$?
judge "check --json: the disk is full" lost "No space left on device (ENOSPC)"
(
	trap '' PIPE
	timeout 20 "$tool" --help 2>"$tmp/err"
	echo $? >"$tmp/status"
) | true
sleep 0.1
for _ in $(seq 50); do
	[ -s "$tmp/status" ] && break
	sleep 0.1
done
status=$(cat "$tmp/status")
# The reader may have read everything before it ended.
judge "nobody reads" eval '[ "$status" = 0 ] || lost "Broken pipe (EPIPE)"'
timeout 20 "$tool" stat 0.01 >/dev/full 2>"$tmp/err"
status=$?
judge "stat again and again ends at the first that is lost" lost "No space left on device (ENOSPC)"
timeout 20 "$tool" frobnicate >&- 2>&-
status=$?
judge "with nothing open there is still a status" [ "$status" = 2 ]

# Files written by name.
head -c 65536 /dev/urandom >"$tmp/file"
bench=(bench "$tmp/file" --route host --bytes 65536 --io-size 64K)
ask "${bench[@]}" --svg "$tmp/bench.svg"
judge "bench --svg" eval '[ "$status" = 0 ] && grep -q "</svg>" "$tmp/bench.svg"'
ask "${bench[@]}" --svg /dev/full
judge "bench --svg: the disk is full" eval '[ "$status" = 1 ] && grep -q "^peerdma: cannot write /dev/full: .*(ENOSPC)$" "$tmp/err"'
if command -v dot >/dev/null; then
	ask topo --svg "$tmp/topo.svg"
	judge "topo --svg" eval '[ "$status" = 0 ] && grep -q "</svg>" "$tmp/topo.svg"'
	ask topo --svg /dev/full
	judge "topo --svg: the disk is full" eval '[ "$status" = 1 ] && grep -q "^peerdma: cannot write /dev/full: .*(ENOSPC)$" "$tmp/err"'
fi
ask "${bench[@]}" --rw randwrite --svg "$tmp/none.svg"
judge "bench --svg: nothing is left of what fails" eval '[ "$status" != 0 ] && ! [ -e "$tmp/none.svg" ]'
echo old >"$tmp/old.svg"
ask "${bench[@]}" --rw randwrite --svg "$tmp/old.svg"
judge "bench --svg: nor is what was there gone" eval '[ "$status" != 0 ] && [ "$(cat "$tmp/old.svg")" = old ]'
mkfifo "$tmp/fifo"
for words in "topo --svg" "bench $tmp/file --route host --svg"; do
	# shellcheck disable=SC2086
	ask $words "$tmp/fifo"
	judge "$words FIFO: nobody reads it" eval '[ "$status" = 1 ] && grep -q "(ENXIO)" "$tmp/err"'
done
# A file that is open for another purpose never becomes standard output.
timeout 20 "$tool" "${bench[@]}" --svg "$tmp/bench.svg" >&- 2>"$tmp/err"
status=$?
judge "bench --svg with a closed standard output" eval 'lost "Bad file descriptor (EBADF)" && tail -n 1 "$tmp/bench.svg" | grep -q "^</svg>$"'

# A name with an escape sequence that clears the screen.
name=$tmp/$'\e[2J\rx'
printf 'deny provider=10de:2336\n' >"$name"
ask rules check "$name"
judge "a name is shown in C's escapes" eval '[ "$status" = 0 ] && grep -qF "$tmp/\\033[2J\\rx: 1 rule" "$tmp/out"'
ask rules check "$name" --json
judge "and is itself in JSON" eval 'grep -qF "\\u001b[2J\\rx" "$tmp/out"'
ask rules check "$name-"
judge "an error is one line of letters" eval '[ "$status" = 1 ] && [ "$(wc -l <"$tmp/err")" = 1 ] && ! grep -q "[[:cntrl:]]" "$tmp/err"'

# The cause is the system's error.
long=/$(printf 'x%.0s' {1..300})
mkdir "$tmp/closed"
chmod 0 "$tmp/closed"
ln -s nowhere "$tmp/broken"
for row in "$tmp/none ENOENT" "$tmp/broken ENOENT" "$tmp/file/rules ENOTDIR" "$long ENAMETOOLONG" "$tmp/closed/rules EACCES"; do
	cause=${row##* }
	# root may search any directory
	[ "$cause" != EACCES ] || ! [ -x "$tmp/closed" ] || continue
	ask rules check "${row% *}"
	judge "rules check: $cause" eval '[ "$status" = 1 ] && grep -q "($cause)" "$tmp/err"'
	ask rules explain --provider 01:00.0 "${row% *}"
	judge "rules explain: $cause" eval '[ "$status" = 1 ] && grep -q "($cause)" "$tmp/err" && ! [ -s "$tmp/out" ]'
done
finish
