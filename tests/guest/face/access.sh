#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Access rights of the device node's group, other users, other processes and containers, and what each of them can
# learn.
# group: limits
# topologies: switch
# variants: plain
# needs: udevadm
# timeout: 90
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
device=/sys/bus/pci/devices/$gpu
publish
mount_disk
pattern fill /mnt/disk/access 0 1048576 pattern:1
head -c 1048576 /dev/zero >/mnt/disk/scratch
chown 1000:1000 /mnt/disk/access /mnt/disk/scratch
sync

# member COMMAND...: as a user in the group. stranger: as a user outside it.
member() { setpriv --reuid 1000 --regid 1000 --groups "$gid" --inh-caps=-all "$@"; }
stranger() { setpriv --reuid 1001 --regid 1001 --clear-groups --inh-caps=-all "$@"; }

# --- The device node
same "the node as the kernel makes it" "660 0 0" "$(stat -c '%a %u %g' /dev/peerdma)"
mkdir /tmp/etc
for part in group passwd login.defs nsswitch.conf ld.so.cache; do [ ! -e /etc/$part ] || cp /etc/$part /tmp/etc/; done
sed -i '/^peerdma:/d' /tmp/etc/group
mount --bind /tmp/etc /etc
check "the group is made" "$LAB_ROOT/scripts/group.sh"
check "once" "$LAB_ROOT/scripts/group.sh"
same "and is one" 1 "$(grep -c ^peerdma: /etc/group)"
gid=$(getent group peerdma | cut -d: -f3)

mkdir -p /run/udev/rules.d
cp "$LAB_ROOT/scripts/60-peerdma.rules" /run/udev/rules.d/
said=$(udevadm test --action=add /sys/class/misc/peerdma 2>&1)
check "udev takes the rule for our node, and the group" grep -qE "permissions /dev/peerdma, uid=0, gid=$gid, mode=0660" <<<"$said"
chgrp "$gid" /dev/peerdma

bdf=$((0x${gpu:5:2} << 8 | 0x${gpu:8:2} << 3 | 0x${gpu:11}))
read_rights() { "$@" access rights "${gpu%%:*}" "$(printf %x $bdf)" 2; }
same "root" "open 0 publish 17 unpublish 0" "$(read_rights 2>/dev/null | cut -d' ' -f1-6)"
publish
same "a member may use the node, and neither publish, unpublish nor have others' bytes" \
	"open 0 publish 1 unpublish 13 alloc 0 unzeroed 1" "$(read_rights member)"
same "a stranger may not open it" "open 13" "$(read_rights stranger)"
relay member access ids /mnt/disk/access

# --- What a member can learn. Any user may read the BAR's address in the device's "resource" file of the kernel; our
# own files must add nothing to that.
read -r start len <<<"$(gpu_bar)"
mkdir -p /tmp/said
chmod 755 /tmp/said
peerdma publish "$gpu" >/dev/null
member peerdma explain /mnt/disk/access >/tmp/said/explain
member peerdma explain --json /mnt/disk/access >/tmp/said/explain.json
member peerdma providers --json >/tmp/said/providers
member peerdma check >/tmp/said/check
member peerdma stat >/tmp/said/stat
member peerdma cp --json /mnt/disk/access gpu: >/tmp/said/cp
# The kernel's P2PDMA code logs the memory's address under our driver's name. All other lines under that name are ours.
dmesg | grep -i peerdma | grep -v 'added peer-to-peer DMA memory' >/tmp/said/dmesg
member find /sys/module/peerdma/ /sys/class/misc/peerdma/ /sys/bus/pci/drivers/peerdma/ /tmp/said -type f -readable >/tmp/names
relay member access look /mnt/disk/access "$start" "$len" </tmp/names
check "counters and traces of all are for root" bash -c "! setpriv --reuid 1000 --regid 1000 --groups $gid cat /sys/kernel/debug/peerdma/stats 2>/dev/null"
same "debugfs and tracefs" "700 400 700" "$(stat -c %a /sys/kernel/debug /sys/kernel/debug/peerdma/stats /sys/kernel/tracing | tr '\n' ' ' | sed 's/ $//')"

# --- A container: user, mount and net namespaces, the device node and the files, nothing else
cat >/tmp/inside <<'END'
set -e
export PATH=$LAB_BUILD/bin:/usr/bin:/usr/sbin # the mount namespace hides /run/lab too
mkdir /tmp/dev
for node in null peerdma; do touch /tmp/dev/$node; mount --bind /dev/$node /tmp/dev/$node; done
mount --rbind /tmp/dev /dev
mount -t tmpfs none /sys
mount -t tmpfs none /run
echo "$(id -u) sys:$(ls /sys | wc -l) run:$(ls /run | wc -l) dev:$(ls /dev | tr '\n' ' ')" >/tmp/said.inside
access move /mnt/disk/access /mnt/disk/scratch >>/tmp/said.inside
access rights "$1" "$2" 2 >>/tmp/said.inside
peerdma check --json >/tmp/said.check || true
peerdma explain /mnt/disk/access >/tmp/said.explain
END
spaces='--user --map-root-user --mount --net'
[ ! -e /proc/self/ns/pid ] || spaces+=' --pid --fork'
# shellcheck disable=SC2086
check "a container made with unshare" member unshare $spaces bash /tmp/inside "${gpu%%:*}" "$(printf %x $bdf)"
diag "$spaces"
mapfile -t inside </tmp/said.inside
same "root of its own, with the node and nothing else" "0 sys:0 run:0 dev:null peerdma " "${inside[0]}"
[ -z "${FAR_DISK:-}" ] && direct=1048576 route=direct || direct=0 route="bounced through host"
same "reads and writes through the library, direct" "same $direct $direct" "${inside[1]}"
check "every byte of it" pattern compare /mnt/disk/scratch 0 1048576 pattern:1
same "neither publishes nor unpublishes, nor has others' bytes" \
	"open 0 publish 1 unpublish 19 alloc 0 unzeroed 1" "${inside[2]}"
same "check: what it can know" "True good good good warn unknown unknown good" "$(python3 -c '
import json
j = json.load(open("/tmp/said.check"))
by = {i["id"]: i["state"] for i in j["items"]}
print(j["ready"], *[by[k] for k in ("module", "node", "providers", "container", "iommu", "disks", "uring")])')"
check "explain" grep -q "^route *$route" /tmp/said.explain

chgrp 0 /dev/peerdma
umount /etc
rm -f /mnt/disk/scratch
plan $tap_n
