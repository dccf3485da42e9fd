#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The library: rings of many requests, each of which must complete exactly once; and its fallback where nothing goes
# direct.
# group: io
# topologies: switch
# variants: plain
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/batch 0 1048576 pattern:1
sync
rm -f /run/elsewhere # other tests may have left a longer one
pattern fill /run/elsewhere 0 100000 pattern:2
host fill gpu0 0 4194304 pattern:9 >/dev/null
relay batch /mnt/disk/batch /run/elsewhere
check "both MiB are the file's, as the host sees them" eval \
	'host compare gpu0 0 1048576 pattern:1 && host compare gpu0 1048576 1048576 pattern:1'
check "and what came by the page cache, there and back" eval \
	'host compare gpu0 3145728 100000 pattern:2 && pattern compare /run/elsewhere 0 100000 pattern:2'
plan $tap_n
