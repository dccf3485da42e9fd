#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# More than a user or a cgroup may have is an error for who asked, and nobody's bytes reach another: limits.cpp.
# group: limits
# topologies: switch
# needs: CONFIG_MEMCG
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/limits 0 1048576 pattern:1
sync
cgroups=/mnt/cgroup
mkdir -p $cgroups
mount -t cgroup2 none $cgroups || bail "no cgroups"
controllers='memory'
! grep -qw dmem $cgroups/cgroup.controllers || controllers+=' dmem'
for controller in $controllers; do echo "+$controller" >$cgroups/cgroup.subtree_control; done
limits /mnt/disk/limits "/sys/bus/pci/devices/$(gpu_bdf)" $cgroups
status=$?
for controller in $controllers; do echo "-$controller" >$cgroups/cgroup.subtree_control; done
umount $cgroups
exit $status
