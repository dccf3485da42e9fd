#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs large.sh, requests over 2 GiB, on a drive that is connected by NVMe over RDMA through a network card whose own DMA engine moves the
# bytes (tests/kmod/dmacard_rdma.h). It sets the disk's queue, which with NVMe multipath is a path's: the kernel knows none here.
# group: rdma
# topologies: disks
# wants: nvme-rdma-p2p
# tier: all
# boot: large
# variants: plain
# needs: rdma
# timeout: 600
# long: plain
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

modprobe -d "$LAB_KERNEL" -r nvme nvme_core
modprobe -d "$LAB_KERNEL" nvme_core multipath=N && modprobe -d "$LAB_KERNEL" nvme || bail "no nvme_core without multipath"
drives_are_there() { nvme_disk nvme0 && nvme_disk nvme3; } >/dev/null
soon 20 drives_are_there || bail "no drives"
publish
card_drive
same "the kernel knows no multipath" N "$(cat /sys/module/nvme_core/parameters/multipath)"
carried large
no_card_drive
plan $tap_n
