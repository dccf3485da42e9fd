#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs cuFile programs with libcufile.so.0 and a stand-in for the CUDA driver (tests/softgpu), whose device memory is
# the published BAR. Tests direct I/O by every family of calls and the cases that cannot be direct (cufile.cpp), then a
# machine without CUDA (nocuda.cpp).
# group: cufile
# topologies: switch
# variants: plain debug
# timeout: 120
# long: debug
. "$LAB_ROOT/tests/guest/lib.sh"

publish
mount_disk
pattern fill /mnt/disk/cufile 0 6291456 pattern:1
pattern fill /run/elsewhere 0 262144 pattern:2
sync

relay env CUFILE_LOGGING_LEVEL=WARN CUFILE_LOGFILE_PATH=/tmp/cufile.log cufile direct /mnt/disk/cufile /run/elsewhere
if [ -z "${FAR_DISK:-}" ]; then # with soft-RoCE nothing is direct
	for why in "not known to be safe" "memory alignment" "in no buffer"; do
		same "the log says once: $why" 1 "$(grep -c "WARN.*not direct: .*$why" /tmp/cufile.log)"
	done
	relay env PEERDMA_REQUIRE_DIRECT=1 cufile strict /mnt/disk/cufile /run/elsewhere
fi

# Random reads and writes, each compared, as on a machine with a GPU; then at full speed.
fixture() { LD_LIBRARY_PATH=$LAB_BUILD/tests/softgpu cufile_gpu "$LAB_BUILD/lib/libcufile.so.0" "$@" 2>&1; }
same "96 random reads and writes, at any place" '{"what": "verify", "ios": 96, "wrong": 0}' \
	"$(fixture verify /mnt/disk/verify 1 96 "${LAB_SEED:-1}")"
before=$(host_bytes)
for what in "read 4096 4" "write 65536 4" "read 524288 2" "batch 16384 1"; do
	[ -z "${FAR_DISK:-}" ] || break
	read -r how size threads <<<"$what"
	# Prints one line of figures. They are an emulator's.
	said=$(PEERDMA_REQUIRE_DIRECT=1 fixture "$how" /mnt/disk/verify "$size" "$threads" 0.2 direct)
	check "$what threads, direct" grep -q "^{\"what\": \"$how\".*\"gb_s\": [0-9.]*, [^{]*}$" <<<"$said"
done
same "nothing of it by way of the host" "$before" "$(host_bytes)"

# Without sysfs and udev's database, registration must rely on the file alone.
cat >/tmp/bare <<'END'
umount -R /sys && mount -t tmpfs none /sys && mkdir -p /run/udev && mount -t tmpfs none /run/udev || exit 1
[ -z "$(ls -A /sys /run/udev | grep -v :)" ] || exit 2
exec cufile bare /mnt/disk/cufile /run/elsewhere
END
relay unshare --mount bash /tmp/bare

# Without a CUDA driver; then on the raw drive and on a partition, also without sysfs and udev. The old contents are
# restored.
relay nocuda file /mnt/disk/cufile 6291456
umount /mnt/disk
drive=$(nvme_disk) at=$((128 << 20)) size=$((8 << 20))
addpart "$drive" 1 $((at / 512)) $((size / 512)) || bail "no partition"
dd if="$drive" of=/run/saved bs=1M skip=$((at >> 20)) count=$((size >> 20)) status=none || bail "nothing is saved"
sed 's/^exec .*//' /tmp/bare >/tmp/bare-disk
echo 'exec nocuda block "$@"' >>/tmp/bare-disk
relay unshare --mount bash /tmp/bare-disk "$drive" "$at" 0
relay unshare --mount bash /tmp/bare-disk "${drive}p1" 0 "$at"
dd if=/run/saved of="$drive" bs=1M seek=$((at >> 20)) conv=notrunc,fsync status=none || bail "nothing is put back"
delpart "$drive" 1
mount_disk

relay cufile gone /mnt/disk/cufile /run/elsewhere
plan $tap_n
