#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# peerdma bench with too little memory for one row: it measures the other rows, and the JSON output is complete. Host
# rows need no module.
. "$(dirname "$0")/../tap.sh"
temporary -p "$build"

# says WHAT WANT GOT: as same, with the command's messages after a failure
says() { same "$@" || sed 's/^/# /' "$tmp/said"; }
# bench ADDRESS-SPACE ARGUMENT...
bench() { (ulimit -v "$1" && "$build/bin/peerdma" bench --json --route host --runtime 0.1 "${@:2}" "$tmp/file") >"$tmp/out" 2>"$tmp/said"; }
# rows: size and errno of each
rows() {
	python3 -c 'import json, sys
print(*("{}:{}".format(row["size"], (row["error"] or {}).get("errno")) for row in json.load(open(sys.argv[1]))["rows"]))' "$tmp/out" 2>&1 | tail -n 1
}

truncate -s 128M "$tmp/file"
if ! dd if="$tmp/file" of=/dev/null iflag=direct bs=4096 count=1 2>/dev/null; then
	skip "rows with too little memory" "$build has no O_DIRECT"
	finish
fi
bench 2000000 --io-size 4K,64M,8K --threads 2 --depth 1024
says "64 GiB of memory: it says that a row has failed" 1 $?
says "the rows before and after that are measured" "4096:None 67108864:ENOMEM 8192:None" "$(rows)"
bench 2000000 --io-size 4K --threads 1,1024,2
says "8 GiB of stacks: it says that a row has failed" 1 $?
says "the rows before and after that are measured too" "4096:None 4096:EAGAIN 4096:None" "$(rows)"
finish
