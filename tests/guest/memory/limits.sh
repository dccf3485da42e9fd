#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# More than a user or a cgroup may have is an error for who asked, and nobody's bytes reach another: limits.cpp.
# group: limits
# topologies: switch
# needs: CONFIG_MEMCG
. "$LAB_ROOT/tests/guest/lib.sh"

publish
# Half of the filesystem is kept for root, and the other half is taken.
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
