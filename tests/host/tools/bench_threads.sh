#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: all
#
# peerdma bench and libpeerdma with several threads, under ThreadSanitizer. Host rows need no module.
. "$(dirname "$0")/../tap.sh"
temporary -p "$build"

export TSAN_OPTIONS=exitcode=66
# bench ARGUMENT...
bench() { "$build/tsan/bin/peerdma" bench --json --route host --runtime 0.3 "$@" "$tmp/file" >"$tmp/out" 2>"$tmp/said"; }

check "it is compiled for ThreadSanitizer" grep -q __tsan_init "$build/tsan/bin/peerdma"
truncate -s 64M "$tmp/file"
for how in read randread write randwrite; do
	bench --rw $how --overwrite --io-size 4K,256K --threads 1,4 --depth 1,8
	same "$how: it ends without a report" 0 $? || sed 's/^/# /' "$tmp/said"
	same "$how: all rows moved bytes" "8 True" "$(python3 -c 'import json, sys
rows = json.load(open(sys.argv[1]))["rows"]
print(len(rows), all(row["bytes"] > 0 and not row["error"] for row in rows))' "$tmp/out" 2>&1)"
done
finish
