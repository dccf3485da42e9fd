#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A storage node without any setup: the drive nvme0 with a filesystem, and /srv on nvme1, each with a file; Debian's NFS
# programs, which systemctl starts. Executes the commands that the documentation lists.
# timeout: 600
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/typed.sh"
plan 1

debian_finds_modules
kernel_has
plug
ip addr add 192.0.2.2/24 dev eth0
ip addr add 2001:db8::2/64 dev eth0 nodad
# An NFS server's root must be exportable, which the lab's is not: give it a root of its own.
export_root=/mnt/root
mkdir -p $export_root
mount -t tmpfs none $export_root
mkdir $export_root/srv
printf '[exports]\nrootdir=%s\n' $export_root >/run/nfs.conf
mount --bind /run/nfs.conf /etc/nfs.conf
# By the kernel's names, which the page uses: the order of the drives differs between boots.
mkdir -p /mnt/disk
mount /dev/nvme1n1 $export_root/srv && mount /dev/nvme0n1 /mnt/disk || bail "no filesystems"
pattern fill /mnt/disk/file.bin 0 2162688 pattern:1
pattern fill $export_root/srv/file.bin 0 2162688 pattern:2
umount /mnt/disk
nfs_state
like_the_tree pair
# What systemd does for that Debian unit and for the units it needs.
stands_for systemctl '. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
steps() { # KEY: the commands of the unit; one with a "-" may fail
	local command
	while read -r command; do ${command#-} || [[ $command == -* ]] || exit 1; done < <(sed -n "s/^$1=//p" /lib/systemd/system/nfs-server.service)
}
case "$*" in
"start nfs-server") nfs_programs && steps ExecStartPre && steps ExecStart ;;
"stop nfs-server") steps ExecStop && steps ExecStopPost && no_nfs_programs ;;
*) exit 2 ;;
esac'
host say ready >/dev/null
check "the other guest is done" obey
umount $export_root/srv $export_root /etc/nfs.conf
rdma link del rxe0
