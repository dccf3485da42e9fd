#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Each provider's device node must reach that provider and no other, by each call. It disappears with its provider;
# descriptors that are open then stay valid and return an error. The mode that a node was opened with is honored
# (nodes.cpp).
# group: lifetime
# topologies: paths
# tier: all
# variants: plain debug
# needs: udevadm
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

gpu0=$(gpu_bdf) gpu1=$(pci_of 0x1af4:0x1110 1)
bdf1=$((0x${gpu1:5:2} << 8 | 0x${gpu1:8:2} << 3 | 0x${gpu1:11}))
drive=$(nvme_bdf nvme0)
drive_bdf=$((0x${drive:5:2} << 8 | 0x${drive:8:2} << 3 | 0x${drive:11}))
file=/mnt/disk/nodes scratch=/mnt/disk/nodes.scratch
# id_of GPU: its provider's id
id_of() { peerdma providers --json | python3 -c 'import json, sys
print(*[p["id"] for p in json.load(sys.stdin)["providers"] if p["pci"] == sys.argv[1]])' "$1"; }
user() { setpriv --reuid 1000 --regid 1000 --clear-groups --inh-caps=-all "$@"; }
# begin WHAT [ARGS]: starts a part of nodes.cpp and waits for its first line; next: sends it a line and prints the
# answer; end
begin() {
	coproc part { exec nodes "$@"; }
	exec {from}<&"${part[0]}" {to}>&"${part[1]}"
	eval "exec ${part[0]}<&- ${part[1]}>&-"
	read -r said <&"$from"
	[ "$said" = here ] || bail "nodes $1: $said"
}
next() {
	echo >&"$to"
	read -r said <&"$from"
}
end() {
	exec {to}>&-
	read -r said <&"$from"
	exec {from}<&-
	wait
}

afresh
load_module
mke2fs -q -F -t ext4 "$(nvme_disk)"
mount_disk
pattern fill $file 0 1048576 pattern:1
pattern fill $scratch 0 1048576 pattern:2
chown 1000 $file $scratch
sync
check "the first GPU is published" peerdma publish "$gpu0"
check "the second GPU is published" peerdma publish "$gpu1"
own=$(id_of "$gpu0") other=$(id_of "$gpu1")
node=/dev/peerdma$own

# --- The node
same "each has a node, as the kernel makes it" "660 0 0 660 0 0" "$(stat -c '%a %u %g' "$node" "/dev/peerdma$other" | tr '\n' ' ' | sed 's/ $//')"
same "whose place the GPU names" "peerdma$own" "$(ls "/sys/bus/pci/devices/$gpu0/peerdma")"
same "which belongs to the GPU" "$gpu0" "$(basename "$(realpath "/sys/class/peerdma/peerdma$own/device")")"
mkdir /tmp/nodes.etc
for part in group passwd nsswitch.conf ld.so.cache; do [ ! -e /etc/$part ] || cp /etc/$part /tmp/nodes.etc/; done
grep -q ^peerdma: /tmp/nodes.etc/group || echo peerdma:x:990: >>/tmp/nodes.etc/group
mount --bind /tmp/nodes.etc /etc
gid=$(getent group peerdma | cut -d: -f3)
mkdir -p /run/udev/rules.d
cp "$LAB_ROOT/scripts/60-peerdma.rules" /run/udev/rules.d/
udevadm test --action=add "/sys/class/peerdma/peerdma$own" >/tmp/nodes.udev 2>&1
check "udev gives it to the group" grep -qE "permissions $node, uid=0, gid=$gid, mode=0660" /tmp/nodes.udev
umount /etc

# --- A user with access to one node
chown 0:0 /dev/peerdma "$node" "/dev/peerdma$other"
chown 1000 "$node"
same "a user who was given one node opens it" 0 "$(user nodes opens "$node")"
same "and neither the other's nor the node of all" "13 13" "$(user nodes opens "/dev/peerdma$other") $(user nodes opens /dev/peerdma)"
relay user nodes own "$node" "$own" "$other" $file $scratch "${gpu1%%:*}" $bdf1
pattern fill $scratch 0 1048576 pattern:2
relay_as root nodes own "$node" "$own" "$other" $file $scratch "${gpu1%%:*}" $bdf1
relay nodes all "$own" "$other" $file
relay user nodes modes "$node" "$own" $file $scratch

# --- The library and the command find the node that the user may open
same "the command sees what the node reaches" "$own" "$(user peerdma providers --json | python3 -c 'import json, sys
print(*[p["id"] for p in json.load(sys.stdin)["providers"]])')"
check "and moves by it" user peerdma cp $file gpu:
user peerdma check --verbose >/tmp/nodes.check
check "peerdma check says that it is one provider's" grep -q "the node of one provider opens" /tmp/nodes.check
same "PEERDMA_DEVICE names one" "$other" "$(PEERDMA_DEVICE=/dev/peerdma$other peerdma providers --json | python3 -c 'import json, sys
print(*[p["id"] for p in json.load(sys.stdin)["providers"]])')"
check "which has to be there" bash -c "! PEERDMA_DEVICE=/dev/peerdma999 peerdma providers >/dev/null 2>&1"

# --- The provider is removed while its node is open
mknod /tmp/nodes.copy c $((0x$(stat -c %t "$node"))) $((0x$(stat -c %T "$node")))
same "a copy of the node opens the same" 0 "$(nodes opens /tmp/nodes.copy)"
begin stay "$node" "$own" $file
check "the provider goes all the same" timeout 20 peerdma unpublish "$gpu0"
next
same "its buffer is gone, and with a reason; nothing is found any more; destroying works" "-19 48 -2 -2 0 0 0" "$said"
check "the node is gone" test ! -e "$node"
same "and a copy of it opens nothing" 6 "$(nodes opens /tmp/nodes.copy)"
check "the GPU is published again" peerdma publish "$gpu0"
again=$(id_of "$gpu0")
check "by another number" [ "$again" -ne "$own" ]
next
same "which the open file does not reach" "0 0 2" "$said"
same "nor does the copy" 6 "$(nodes opens /tmp/nodes.copy)"
check "the module stays while it is open" bash -c '! rmmod peerdma 2>/dev/null'
end
rm /tmp/nodes.copy

# --- Providers come and go while nodes are opened
rounds=8
[ "$LAB_VARIANT" = plain ] || rounds=4
begin storm
good=0
for ((i = 0; i < rounds; i++)); do
	peerdma unpublish "$gpu0" >/dev/null && peerdma publish "$gpu0" >/dev/null && good=$((good + 1))
done
end
same "the provider comes and goes while its nodes are opened" $rounds $good
check "and they were used meanwhile ($said buffers)" [ "$said" -gt 0 ]

# --- A page of one GPU that is still held does not keep the other GPU. The second one's provider has the smallest id.
exec {holder_fd}< <(exec hold 65536)
holder=$!
read -r _ <&"$holder_fd"
read -r place <&"$holder_fd"
insmod "$(dirname "$LAB_MODULE")/kmod/pin.ko" device="$gpu1" offset="$place" || bail "pin.ko"
kill -USR2 $holder
read -r said <&"$holder_fd"
same "a buffer of the second GPU is destroyed while a page of it is held" 0 "$said"
check "the first GPU is given back meanwhile" timeout 20 peerdma unpublish "$gpu0"
check "the page is still held" grep -q "pci=$gpu1 .* pages=1 " /sys/kernel/debug/peerdma/held
check "the first GPU is published again" peerdma publish "$gpu0"
rmmod pin
kill -KILL $holder
exec {holder_fd}<&-
wait $holder 2>/dev/null

# --- Memory of another driver
check "the second GPU is given back" peerdma unpublish "$gpu1"
insmod "$(dirname "$LAB_MODULE")/kmod/expstand.ko" && echo expstand >"/sys/bus/pci/devices/$gpu1/driver_override" &&
	echo "$gpu1" >/sys/bus/pci/drivers_probe || bail "expstand.ko"
node=/dev/peerdma$(id_of "$gpu0")
relay nodes import "$node" "${node#/dev/peerdma}" "${drive%%:*}" $drive_bdf
gone() { [ "$(echo /dev/peerdma[0-9]*)" = "$node" ]; }
check "with the last of it its provider's node goes" soon 5 gone
check "the exporter goes" soon 5 rmmod expstand
echo >"/sys/bus/pci/devices/$gpu1/driver_override"

check "the first GPU is given back" peerdma unpublish "$gpu0"
check "the module goes, and leaves no node" rmmod peerdma
same "none" "/dev/peerdma*" "$(echo /dev/peerdma*)"
rm -f $file $scratch
plan $tap_n
