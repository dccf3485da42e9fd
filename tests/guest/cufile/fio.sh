#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs unmodified fio from Debian's source with its libcufile engine (built by scripts/fio.sh). Threads that share the
# device write, read and verify; the drive's DMA must show the route.
# group: cufile
# topologies: switch
# variants: plain debug
# needs: fio-cufile
# timeout: 180
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
# On a debug kernel a job outlasts several journal commits. Allow none while a job runs.
mount -o remount,commit=600 /mnt/disk || bail "no remount"
file=/mnt/disk/fio
head -c $((16 * mib)) /dev/zero >$file
sync

# total KEY: from the kernel's counters
total() { sed -n "s/^total .* $1=\([0-9]*\).*/\1/p" /sys/kernel/debug/peerdma/stats; }

# job NAME BYTES [OPTION...]: must move exactly BYTES directly and nothing through the host
job() {
	local name=$1 bytes=$2 direct host said
	sync
	direct=$(total direct) host=$(total host)
	host dma-mark >/dev/null
	said=$(LD_LIBRARY_PATH=$LAB_BUILD/lib:$LAB_BUILD/tests/softgpu PEERDMA_REQUIRE_DIRECT=1 \
		fio-cufile --name=job --ioengine=libcufile --cuda_io=cufile --gpu_dev_ids=0 --direct=1 --thread \
		--filename=$file --size=$((16 * mib)) --overwrite=1 --allow_file_create=0 --verify_state_save=0 --minimal "${@:3}" 2>&1)
	same "$name: fio's own status, and what it complains of" "0 " "$? $(grep -v -e '^3;' -e 'multiple writers' <<<"$said")"
	same "$name: bytes that the module moved directly, and by way of the host" "$bytes 0" \
		"$(($(total direct) - direct)) $(($(total host) - host))"
	said=$(host dma)
	# Bytes elsewhere are the filesystem's own reads and writes, and over a network those of the target.
	[[ $said =~ ^ok\ gpu0\ $bytes\ elsewhere\ ([0-9]+)$ && (-n ${FAR_PCI:-} || ${BASH_REMATCH[1]} -lt 65536) ]]
	same "$name: the drive's own DMA was the device's memory ($said)" 0 $?
}

job "1 MiB writes, read back and checked" $((32 * mib)) --rw=write --bs=1m --verify=md5
job "random 4 KiB writes by 8 threads, a part of the file each, read back and checked" $((16 * mib)) --rw=randwrite --bs=4k \
	--numjobs=8 --size=$mib --offset_increment=$mib --verify=crc32c
job "random 64 KiB reads by 4 threads" $((16 * mib)) --rw=randread --bs=64k --numjobs=4 --size=$((4 * mib))
rm $file
plan $tap_n
