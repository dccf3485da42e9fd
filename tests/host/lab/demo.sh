#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# make demo with an unusable FILE: one clear line and exit status 2, before anything is built or booted.
set -u
cd "$(dirname "$0")/../../.." || exit 1
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
n=0

refuses() {
	local status=0 lines
	n=$((n + 1))
	"${@:4}" qemu/demo.py --check-file "$2" >"$dir/out" 2>"$dir/err" || status=$?
	lines=$(cat "$dir/out" "$dir/err" | wc -l)
	if [ "$status" = 2 ] && [ "$lines" = 1 ] && grep -q "$3" "$dir/err"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		echo "# status $status: $(cat "$dir/out" "$dir/err")"
	fi
}

: >"$dir/empty"
mkfifo "$dir/fifo"
truncate -s 512M "$dir/large"
refuses "empty" "$dir/empty" "is empty"
refuses "a directory" "$dir" "is a directory"
refuses "a pipe" "$dir/fifo" "not a regular file"
refuses "not there" "$dir/none" "No such file"
refuses "larger than the emulated GPU" "$dir/large" "has room for"
# Root can read every file, so run this case as nobody.
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
echo secret >"$dir/secret"
chmod 0 "$dir/secret"
chmod 755 "$dir"
if "${as[@]}" test -r qemu/demo.py; then
	refuses "unreadable" "$dir/secret" "ermission denied" "${as[@]}"
else
	n=$((n + 1))
	echo "ok $n - unreadable # SKIP nobody may not enter this folder"
fi
n=$((n + 1))
truncate -s 536866816 "$dir/fits"
if qemu/demo.py --check-file "$dir/fits"; then echo "ok $n - one page less than the GPU has fits"; else echo "not ok $n - fits"; fi
echo "1..$n"
