#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Tests the lifetime of a buffer and its provider during I/O by NVMe over RDMA: runs revoke.sh and, on a debug kernel,
# failnth.sh (each allocation fails once), set up as in fabric_io.sh. The loss of the drive itself: ways.sh, gone.sh.
# group: rdma
# topologies: switch
# boot: fabric
# variants: plain debug
# needs: rdma CONFIG_MEMCG CONFIG_BLK_DEV_DM dmsetup
# timeout: 900
# long: plain debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
far_drive
export LAB_EVENTS=$lifetime_events
carried revoke
unset LAB_EVENTS
if [ "$LAB_VARIANT" = debug ]; then
	publish
	carried failnth
fi
no_far_drive
plan $tap_n
