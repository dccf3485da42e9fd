#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Exceeding a user's or a cgroup's limit must fail for that caller alone, and no user may see another's bytes:
# limits.cpp.
# group: limits
# topologies: switch
# needs: CONFIG_MEMCG
. "$LAB_ROOT/tests/guest/lib.sh"

publish
# Half of the filesystem is reserved for root, and the other half is full.
disk=$(nvme_disk)
tune2fs -r 131072 "$disk" >/dev/null || bail "no blocks for root"
mount_disk
pattern fill /mnt/disk/limits 0 1048576 pattern:1
fallocate -l 600M /mnt/disk/taken || bail "no room"
sync
cgroups=/mnt/cgroup
mkdir -p $cgroups
mount -t cgroup2 none $cgroups || bail "no cgroups"
controllers='memory'
! grep -qw dmem $cgroups/cgroup.controllers || controllers+=' dmem'
for controller in $controllers; do echo "+$controller" >$cgroups/cgroup.subtree_control; done
limits /mnt/disk/limits "/sys/bus/pci/devices/$(gpu_bdf)" $cgroups "${disk##*/}"
status=$?
for controller in $controllers; do echo "-$controller" >$cgroups/cgroup.subtree_control; done
umount $cgroups
rm /mnt/disk/taken
umount /mnt/disk
tune2fs -r 0 "$disk" >/dev/null
exit $status
