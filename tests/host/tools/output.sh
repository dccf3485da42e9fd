#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The peerdma command reports output that could not be written: of each subcommand, help, version, the bash script,
# JSON, and files written by name. It does not wait for input that it does not read.
# Conditions are evaluated by ok().
# shellcheck disable=SC2016
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd)
tool=${PEERDMA_BUILD:-$root/build}/bin/peerdma
dir=$(mktemp -d) || exit 1
trap 'rm -rf "$dir"' EXIT
n=0

# ok NAME CONDITION...
ok() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@"; then
		echo "ok $n - $name"
	else
		printf 'not ok %d - %s\n# status %s: %s\n' "$n" "$name" "$status" "$(head -c 300 "$dir/err")"
	fi
}

# ask WORD...: sets status; output in out and err
ask() {
	timeout 20 "$tool" "$@" >"$dir/out" 2>"$dir/err" </dev/null
	status=$?
}
# lost ERRNO: it reported the lost output in one line
lost() { [ "$status" = 1 ] && [ "$(cat "$dir/err")" = "peerdma: cannot write to standard output: $1" ]; }

for words in --help --version help "help cp" completion "rules check" "rules check --json" stat "stat --json" topo "topo --json" \
	"topo --dot"; do
	# shellcheck disable=SC2086 # words
	ask $words
	ok "$words: it has something to say" [ "$status:$([ -s "$dir/out" ] && echo some)" = 0:some ]
	# shellcheck disable=SC2086
	timeout 20 "$tool" $words >/dev/full 2>"$dir/err"
	status=$?
	ok "$words: the disk is full" lost "No space left on device (ENOSPC)"
	# shellcheck disable=SC2086
	timeout 20 "$tool" $words >&- 2>"$dir/err"
	status=$?
	ok "$words: standard output is closed" lost "Bad file descriptor (EBADF)"
done
for name in $("$tool" --help | sed -n '/^Subcommands:/,$s/^  \([a-z]*\) .*/\1/p'); do
	timeout 20 "$tool" "$name" --help >/dev/full 2>"$dir/err"
	status=$?
	ok "$name --help: the disk is full" lost "No space left on device (ENOSPC)"
done
# The state of the machine may be good or bad; a full disk has another status.
timeout 60 "$tool" check --json >/dev/full 2>"$dir/err"
status=$?
ok "check --json: the disk is full" lost "No space left on device (ENOSPC)"
(
	trap '' PIPE
	timeout 20 "$tool" --help 2>"$dir/err"
	echo $? >"$dir/status"
) | true
sleep 0.1
for _ in $(seq 50); do
	[ -s "$dir/status" ] && break
	sleep 0.1
done
status=$(cat "$dir/status")
# The reader may have read everything before it ended.
ok "nobody reads" eval '[ "$status" = 0 ] || lost "Broken pipe (EPIPE)"'
timeout 20 "$tool" stat 0.01 >/dev/full 2>"$dir/err"
status=$?
ok "stat again and again ends at the first that is lost" lost "No space left on device (ENOSPC)"
timeout 20 "$tool" frobnicate >&- 2>&-
status=$?
ok "with nothing open there is still a status" [ "$status" = 2 ]

# Files written by name.
head -c 65536 /dev/urandom >"$dir/file"
bench=(bench "$dir/file" --route host --bytes 65536 --io-size 64K)
ask "${bench[@]}" --svg "$dir/bench.svg"
ok "bench --svg" eval '[ "$status" = 0 ] && grep -q "</svg>" "$dir/bench.svg"'
ask "${bench[@]}" --svg /dev/full
ok "bench --svg: the disk is full" eval '[ "$status" = 1 ] && grep -q "^peerdma: cannot write /dev/full: .*(ENOSPC)$" "$dir/err"'
if command -v dot >/dev/null; then
	ask topo --svg "$dir/topo.svg"
	ok "topo --svg" eval '[ "$status" = 0 ] && grep -q "</svg>" "$dir/topo.svg"'
	ask topo --svg /dev/full
	ok "topo --svg: the disk is full" eval '[ "$status" = 1 ] && grep -q "^peerdma: cannot write /dev/full: .*(ENOSPC)$" "$dir/err"'
fi
ask "${bench[@]}" --rw randwrite --svg "$dir/none.svg"
ok "bench --svg: nothing is left of what fails" eval '[ "$status" != 0 ] && ! [ -e "$dir/none.svg" ]'
echo old >"$dir/old.svg"
ask "${bench[@]}" --rw randwrite --svg "$dir/old.svg"
ok "bench --svg: nor is what was there gone" eval '[ "$status" != 0 ] && [ "$(cat "$dir/old.svg")" = old ]'
mkfifo "$dir/fifo"
for words in "topo --svg" "bench $dir/file --route host --svg"; do
	# shellcheck disable=SC2086
	ask $words "$dir/fifo"
	ok "$words FIFO: nobody reads it" eval '[ "$status" = 1 ] && grep -q "(ENXIO)" "$dir/err"'
done
# A file that is open for another purpose never becomes standard output.
timeout 20 "$tool" "${bench[@]}" --svg "$dir/bench.svg" >&- 2>"$dir/err"
status=$?
ok "bench --svg with a closed standard output" eval 'lost "Bad file descriptor (EBADF)" && tail -n 1 "$dir/bench.svg" | grep -q "^</svg>$"'

# A name with an escape sequence that clears the screen.
name=$dir/$'\e[2J\rx'
printf 'deny provider=10de:2336\n' >"$name"
ask rules check "$name"
ok "a name is shown in C's escapes" eval '[ "$status" = 0 ] && grep -qF "$dir/\\033[2J\\rx: 1 rule" "$dir/out"'
ask rules check "$name" --json
ok "and is itself in JSON" eval 'grep -qF "\\u001b[2J\\rx" "$dir/out"'
ask rules check "$name-"
ok "an error is one line of letters" eval '[ "$status" = 1 ] && [ "$(wc -l <"$dir/err")" = 1 ] && ! grep -q "[[:cntrl:]]" "$dir/err"'

# The cause is the system's error.
long=/$(printf 'x%.0s' {1..300})
mkdir "$dir/closed"
chmod 0 "$dir/closed"
ln -s nowhere "$dir/broken"
for row in "$dir/none ENOENT" "$dir/broken ENOENT" "$dir/file/rules ENOTDIR" "$long ENAMETOOLONG" "$dir/closed/rules EACCES"; do
	cause=${row##* }
	# root may search any directory
	[ "$cause" != EACCES ] || ! [ -x "$dir/closed" ] || continue
	ask rules check "${row% *}"
	ok "rules check: $cause" eval '[ "$status" = 1 ] && grep -q "($cause)" "$dir/err"'
	ask rules explain --provider 01:00.0 "${row% *}"
	ok "rules explain: $cause" eval '[ "$status" = 1 ] && grep -q "($cause)" "$dir/err" && ! [ -s "$dir/out" ]'
done
echo "1..$n"
