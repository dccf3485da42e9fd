#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The drive reaches the second GPU but not the first. libcufile.so.0 must route the bytes through the second GPU's
# memory if it is configured to, and through host memory otherwise (nearby.cpp). The GPUs are the stand-in's
# (tests/softgpu), whose copies are made by the CPU.
# group: cufile
# topologies: far
# kernels: newest
# because: the library's doing, which is the same on each kernel
# variants: plain debug
# needs: CONFIG_OVERLAY_FS
# timeout: 120
. "$LAB_ROOT/tests/guest/lib.sh"

near=$(pci_of 0x1af4:0x1110 1)
file=/mnt/disk/nearby
afresh
publish
peerdma publish "$near" >/dev/null || bail "the second GPU"
mount_disk
pattern fill $file 0 6291456 pattern:1
sync
verdict() { peerdma explain $file --provider "$1" | awk '$1 == "reason" { sub(":", "", $2); print $2 }'; }
same "the drive and the first GPU" DISTANCE "$(verdict "$(gpu_bdf)")"
same "the drive and the second one" NONE "$(verdict "$near")"

echo '{ "properties": { "rdma_dynamic_routing": true } }' >/tmp/near.json
by_relay() { CUFILE_ENV_PATH_JSON=/tmp/near.json "$@"; }
before=$(host_bytes)
relay by_relay nearby near $file
same "nothing of it by way of the host, says the kernel" "$before" "$(host_bytes)"
relay nearby host $file
relay by_relay env PEERDMA_REQUIRE_DIRECT=1 nearby refused $file
modprobe -d "$LAB_KERNEL" -q overlay
mkdir -p /run/etc/upper /run/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc || bail "no overlay over /etc"
mkdir /etc/peerdma
echo "deny provider=$near file=/mnt/disk" >/etc/peerdma/rules
relay by_relay nearby host $file
umount /etc
peerdma unpublish "$(gpu_bdf)" >/dev/null
plan $tap_n
