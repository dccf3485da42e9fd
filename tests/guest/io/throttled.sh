#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# PeerDMA must obey a cgroup's io.max and count all bytes in its io.stat: throttled.cpp has the cases.
# group: limits
# topologies: switch
# tier: debug
# needs: CONFIG_BLK_CGROUP
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

publish
drive=$(nvme_disk)
queue=/sys/class/block/${drive##*/}/queue
read -r most <"$queue/max_sectors_kb"
echo 64 >"$queue/max_sectors_kb"
cgroups=/mnt/cgroup
mkdir -p $cgroups
mount -t cgroup2 none $cgroups || bail "no cgroups"
echo +io >$cgroups/cgroup.subtree_control
# What is not written back stays so, however slow this machine is.
periodic=/proc/sys/vm/dirty_writeback_centisecs
read -r before <$periodic
echo 0 >$periodic
relay throttled "$drive" $cgroups
echo "$before" >$periodic
echo -io >$cgroups/cgroup.subtree_control
umount $cgroups
echo "$most" >"$queue/max_sectors_kb"
plan $tap_n
