#!/bin/sh
# SPDX-License-Identifier: GPL-2.0
# run.sh FOLDER: as root, in a machine that may be lost: afterwards the share may not unmount. FOLDER is a file system of its
# own that can be frozen and exported (ext4); nfs-utils, util-linux. Server and client of NFS v4.2 are in this machine. The
# server forgets its client while one of its writes is stuck, and the client asks something meanwhile. Afterwards it shall be
# able to open a file; exits with 1 if it is not within half a minute in one of 20 rounds.
set -u
folder=$1 share=$(mktemp -d)
systemctl start nfs-server 2>/dev/null || rpc.nfsd 4
echo N >/sys/module/nfs/parameters/localio_enabled 2>/dev/null
exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=0 "*:$folder" || exit 2
dd if=/dev/zero of="$folder/file" bs=64k count=16 status=none
mount -t nfs -o vers=4.2,proto=tcp localhost:/ "$share" || exit 2
events=/sys/kernel/tracing/events
mountpoint -q /sys/kernel/tracing || mount -t tracefs none /sys/kernel/tracing
for event in state_mgr create_session exchange_id reclaim_complete open_file open_expired; do
	[ ! -e $events/nfs4/nfs4_$event ] || echo 1 >$events/nfs4/nfs4_$event/enable
done
for round in $(seq 20); do
	echo >/sys/kernel/tracing/trace
	exec 5<>"$share/file"
	fsfreeze -f "$folder"
	dd if=/dev/zero of="$share/file" bs=64k count=16 conv=notrunc oflag=direct status=none &
	writer=$!
	sleep 0.5
	for ctl in /proc/fs/nfsd/clients/*/ctl; do echo expire >"$ctl" & done
	sleep 0.5
	timeout 3 dd if="$share/file" of=/dev/null bs=64k count=1 iflag=direct status=none &
	sleep 1
	fsfreeze -u "$folder"
	good=0
	for _ in $(seq 6); do
		! timeout 5 head -c 1 "$share/file" >/dev/null || { good=1; break; }
	done
	if [ $good = 0 ]; then
		echo "round $round: no file opens"
		grep -v '^#' /sys/kernel/tracing/trace | tail -n 25
		for ctl in /proc/fs/nfsd/clients/*/ctl; do echo expire >"$ctl"; done
		timeout 60 head -c 1 "$share/file" >/dev/null && echo "and does when the server has forgotten the client once more"
		wait
		exit 1
	fi
	wait $writer
	exec 5>&-
done
echo "20 rounds: files open"
umount "$share"
