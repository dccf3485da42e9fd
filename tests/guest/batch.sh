#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The library's rings: many requests at once, each ends once, and the bytes are where they should be.
# group: io
# topologies: switch
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/batch 0 1048576 pattern:1
sync
echo other >/run/elsewhere
host fill gpu0 0 2097152 pattern:9 >/dev/null
batch /mnt/disk/batch /run/elsewhere
tap_n=5
check "both MiB are the file's, as the host sees them" eval \
	'host compare gpu0 0 1048576 pattern:1 && host compare gpu0 1048576 1048576 pattern:1'
