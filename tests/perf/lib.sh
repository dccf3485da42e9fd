# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the guest tests that count instructions: lib.sh, and what bench needs.
. "$LAB_ROOT/tests/guest/lib.sh"

# bench_disk: a contiguous file, on a filesystem whose journal does not run during the counts
bench_disk() {
	publish
	mount_disk
	mount -o remount,commit=3000 /mnt/disk
	pattern fill /mnt/disk/bench 0 67108864 pattern:1
	sync
	mountpoint -q /sys/kernel/tracing || mount -t tracefs tracefs /sys/kernel/tracing
}

# bench_xfs: counts for a file on xfs, on the same drive
bench_xfs() {
	local i
	# A worker releases the rings of an ended process, which hold its files until then.
	for ((i = 0; i < 100; i++)); do
		umount /mnt/disk 2>/dev/null && break
		sleep 0.1
	done
	modprobe -d "$LAB_KERNEL" -a xfs
	mkfs.xfs -q -f "$(nvme_disk)" || bail "no xfs"
	mount "$(nvme_disk)" /mnt/disk || bail "no xfs is mounted"
	pattern fill /mnt/disk/bench 0 67108864 pattern:1
	sync
	run_bench xfs
}

# A "rep movsb" counts one instruction per byte: make memcpy() use a loop.
export GLIBC_TUNABLES=glibc.cpu.x86_rep_movsb_threshold=0x40000000

# run_bench main|all|xfs|exact
run_bench() { bench "$1" /mnt/disk/bench "$(nvme_disk)" "$(gpu_bdf)"; }
