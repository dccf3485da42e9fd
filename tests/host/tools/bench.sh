#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# peerdma bench with too little memory for one row: it measures the other rows, and the JSON output is complete. Host
# rows need no module.
set -u
root=$(cd "$(dirname "$0")/../../.." && pwd)
build=${PEERDMA_BUILD:-$root/build}
tmp=$(mktemp -d -p "$build")
trap 'rm -rf "$tmp"' EXIT
n=0 failed=0

# same WHAT WANT GOT
same() {
	n=$((n + 1))
	if [ "$2" = "$3" ]; then echo "ok $n - $1"; else
		printf '%s\n' "not ok $n - $1" "want: $2" "got:  $3" "$(cat "$tmp/said")" | sed '2,$s/^/# /'
		failed=1
	fi
}

# bench ADDRESS-SPACE ARGUMENT...
bench() { (ulimit -v "$1" && "$build/bin/peerdma" bench --json --route host --runtime 0.1 "${@:2}" "$tmp/file") >"$tmp/out" 2>"$tmp/said"; }
# rows: size and errno of each
rows() {
	python3 -c 'import json, sys
print(*("{}:{}".format(row["size"], (row["error"] or {}).get("errno")) for row in json.load(open(sys.argv[1]))["rows"]))' "$tmp/out" 2>&1 | tail -n 1
}

truncate -s 128M "$tmp/file"
if ! dd if="$tmp/file" of=/dev/null iflag=direct bs=4096 count=1 2>/dev/null; then
	echo "1..0 # SKIP $build has no O_DIRECT"
	exit 0
fi
bench 2000000 --io-size 4K,64M,8K --threads 2 --depth 1024
same "64 GiB of memory: it says that a row has failed" 1 $?
same "the rows before and after that are measured" "4096:None 67108864:ENOMEM 8192:None" "$(rows)"
bench 2000000 --io-size 4K --threads 1,1024,2
same "8 GiB of stacks: it says that a row has failed" 1 $?
same "the rows before and after that are measured too" "4096:None 4096:EAGAIN 4096:None" "$(rows)"
echo "1..$n"
exit $failed
