#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma-viewd.service under systemd, in a container of this guest: started, reloaded, killed under a read and started again, stopped.
# With the options of /etc/default it exports its view by TCP, within what the unit lets it write to. The lab's kernels have neither
# seccomp nor filters of devices, so those lines of the unit are not tested.
# group: view
# coverage: none
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# needs: CONFIG_BLK_DEV_UBLK CONFIG_PID_NS CONFIG_OVERLAY_FS CONFIG_NVME_TARGET_TCP CONFIG_NVME_TCP systemd
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/view.sh"

systemd=/lib/systemd/systemd units=/run/units group=/sys/fs/cgroup/lab
modprobe -d "$LAB_KERNEL" -a overlay nvmet nvmet-tcp nvme-tcp || bail "no overlayfs, or no NVMe over TCP"
mountpoint -q /sys/kernel/config || mount -t configfs none /sys/kernel/config
mkdir -p $units $group
sed "s|/usr/sbin/|$LAB_BUILD/bin/|" "$LAB_ROOT/scripts/peerdma-viewd.service" >$units/peerdma-viewd.service
for target in sysinit basic shutdown umount network-online; do printf '[Unit]\nDefaultDependencies=no\n' >$units/$target.target; done
# A machine of its own for systemd: processes, mounts and cgroups. /etc and /var/lib are written to.
cat >/run/boot <<-EOF
	echo \$\$ >$group/cgroup.procs
	exec unshare --cgroup --mount bash -c '
		mount -t proc none /proc && umount -l /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup &&
		mount -t tmpfs none /var/lib && mkdir /var/lib/.upper /var/lib/.work &&
		mount -t overlay -o lowerdir=/etc,upperdir=/var/lib/.upper,workdir=/var/lib/.work none /etc &&
		mkdir -p /etc/default && echo PEERDMA_VIEWD_OPTIONS=\"--port tcp:127.0.0.1:4420 --nqn-prefix $prefix\" >/etc/default/peerdma-viewd &&
		exec env -i PATH=$PATH container=lab SYSTEMD_UNIT_PATH=$units SYSTEMD_LOG_TARGET=console $systemd --system --unit=peerdma-viewd.service'
EOF
unshare --pid --fork --propagation private --mount bash /run/boot >/run/systemd.log 2>&1 &
outer=$!
away() {
	kill -KILL $machine 2>/dev/null
	wait $outer 2>/dev/null
	find $group -depth -type d -exec rmdir {} + 2>/dev/null
	clean_up
}
trap away EXIT
machine=
is_booted() { machine=$(pgrep -x systemd); }
soon 20 is_booted || { sed 's/^/# /' /run/systemd.log; bail "systemd does not start"; }
inside() { nsenter --target "$machine" --mount --pid --cgroup "$@"; }
socket=/run/peerdma/viewd.sock
main() { pgrep -x peerdma-viewd; }
active() { [ "$(inside systemctl is-active peerdma-viewd)" = active ]; }

check "it is started, and says that it is ready" soon 40 active
service=$(main)
image make /mnt/data/a 100001 17 1
inside bash -c "printf '%s\n' 'file = /mnt/data/a' 'codec = u32' 'host = $me' >/etc/peerdma/views.d/tokens.conf"
check "it is reloaded" inside systemctl reload peerdma-viewd
published "a definition is published" tokens
device=$(field tokens device)
check "each element is there" image compare "$device" /mnt/data/a
check "it is exported" test -d "$nvmet/subsystems/${prefix}tokens"
options=$soon,transport=tcp,traddr=127.0.0.1,trsvcid=4420
controller=$(connect "$options,nqn=${prefix}tokens,hostnqn=$me,hostid=${me##*:}") || bail "no connection"
disk=$(disk_of "${prefix}tokens") || bail "no disk"
check "a host has each element" image compare "$disk" /mnt/data/a
disconnect "$controller"
check "the disk goes" soon 20 fails test -b "$disk"
check "it may write nowhere else" fails nsenter --target "$service" --mount touch /mnt/data/x
same "it has two capabilities, and gets no more" "0000000000200004 1" \
	"$(awk '/^CapBnd/ { caps = $2 } /^NoNewPrivs/ { print caps, $2 }' "/proc/$service/status")"

blockdev --flushbufs "$device"
kill -STOP "$service"
dd if="$device" of=/run/late bs=64k iflag=direct status=none &
reader=$!
soon 20 waits $reader || not_ok "a read is under way"
kill -KILL "$service"
wait $reader
same "killed under a read, it is started again: the read ends" 0 $?
check "with each element" image compare /run/late /mnt/data/a
same "it has the same device" "$device" "$(field tokens device)"
check "it is another process" [ "$(main)" != "$service" ]
service=$(main)

check "it is stopped" timeout 40 nsenter --target "$machine" --mount --pid --cgroup systemctl stop peerdma-viewd
same "in order" success "$(inside systemctl show --property Result --value peerdma-viewd)"
check "its device is gone" fails test -b "$device"
check "it is not exported any more" fails test -e "$nvmet/subsystems/${prefix}tokens"
rmdir "$nvmet"/ports/* "$nvmet"/hosts/*
check "the driver is free" rmmod ublk_drv
sed 's/^/# /' /run/systemd.log
plan $tap_n
