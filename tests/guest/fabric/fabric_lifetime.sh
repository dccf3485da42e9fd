#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# What can happen to a buffer and to its provider while its bytes go by way of NVMe over RDMA: revoke.sh and, on a debug kernel,
# each allocation that fails once, failnth.sh; as fabric_io.sh has the others. That the drive itself goes: ways.sh, gone.sh.
# group: rdma
# topologies: switch
# boot: fabric
# variants: plain debug
# needs: rdma CONFIG_MEMCG CONFIG_BLK_DEV_DM dmsetup
# timeout: 900
# long: 6.12 7.2 debug
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
far_drive
export LAB_EVENTS="unbind remove:busy unpublish:block kill exit:block exec:sync pass:completing fork:busy teardown squeeze rmmod:busy"
carried revoke
unset LAB_EVENTS
if [ "$LAB_VARIANT" = debug ]; then
	publish
	carried failnth
fi
no_far_drive
plan $tap_n
