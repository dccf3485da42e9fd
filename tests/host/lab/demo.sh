#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# make demo with an unusable FILE: one clear line and exit status 2, before anything is built or booted.
. "$(dirname "$0")/../tap.sh"
cd "$root" || exit 1
temporary

refuses() {
	local status=0 lines
	"${@:4}" qemu/demo.py --check-file "$2" >"$tmp/out" 2>"$tmp/err" || status=$?
	lines=$(cat "$tmp/out" "$tmp/err" | wc -l)
	if [ "$status" = 2 ] && [ "$lines" = 1 ] && grep -q "$3" "$tmp/err"; then
		ok "$1"
	else
		not_ok "$1" "status $status: $(cat "$tmp/out" "$tmp/err")"
	fi
}

: >"$tmp/empty"
mkfifo "$tmp/fifo"
truncate -s 512M "$tmp/large"
refuses "empty" "$tmp/empty" "is empty"
refuses "a directory" "$tmp" "is a directory"
refuses "a pipe" "$tmp/fifo" "not a regular file"
refuses "not there" "$tmp/none" "No such file"
refuses "larger than the emulated GPU" "$tmp/large" "has room for"
# Root can read every file, so run this case as nobody.
as=()
[ "$(id -u)" != 0 ] || as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
echo secret >"$tmp/secret"
chmod 0 "$tmp/secret"
chmod 755 "$tmp"
if "${as[@]}" test -r qemu/demo.py; then
	refuses "unreadable" "$tmp/secret" "ermission denied" "${as[@]}"
else
	skip "unreadable" "nobody may not enter this folder"
fi
truncate -s 536866816 "$tmp/fits"
check "one page less than the GPU has fits" qemu/demo.py --check-file "$tmp/fits"
finish
