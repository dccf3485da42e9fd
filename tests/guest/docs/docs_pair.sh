#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the documentation's commands for two machines: a storage node and this guest with the GPU. Each block must end as
# its tag says, in the page's order (Documentation/contributing.md), and must do what the page says. The commands are
# typed verbatim, with the real nvme-cli and NFS programs. soft-RoCE replaces the network cards. The storage node has no
# systemd, so a systemctl there runs what the unit says.
# group: rdma
# topologies: switch
# tier: all
# kernels: newest
# because: what a page says to type, which is the same on each kernel
# variants: plain
# peer: bare storage
# needs: CONFIG_OVERLAY_FS rdma nvme rpc.nfsd rpc.mountd rpcbind mount.nfs exportfs nfsdcld
# timeout: 240
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"
. "$LAB_ROOT/tests/guest/typed.sh"

afresh
publish
debian_finds_modules
kernel_has
plug
ip addr add 192.0.2.1/24 dev eth0
ip addr add 2001:db8::1/64 dev eth0 nodad
like_the_tree pair
check "the storage node is there" host hear ready 60
len=2162688

# comes WHAT FILE SEED: reads a file of the storage node by the route that the page set up
comes() {
	same "$1: a read" "$(straight $len) 0" "$(pdio read "$2" 0 $len 0 $len "host fill gpu0 0 $len pattern:9" | tail -n 1)"
	check "$1: what came" host compare gpu0 0 $len "pattern:$3"
}

for block in $tree/blocks/*.sh; do
	name=${block##*/}
	read -r _ _ _ options <"$block" # "# run: pair, storage"
	if [[ $options == *storage* ]]; then
		check "${name#*-}, on the storage node" far "typed $block"
	else
		check "${name#*-}" typed "$block"
	fi
	if [ ! -e $tree/seen ] && mountpoint -q /mnt/far; then
		touch $tree/seen
		same "the controller fails requests after" 10 "$(cat /sys/class/nvme/nvme1/fast_io_fail_tmo)"
		echo 1 >$software
		comes "by NVMe" /mnt/far/file.bin 1
		comes "by NFS" /mnt/share/file.bin 2
	fi
done
same "nothing is left here" "" "$(grep -E ' /mnt/(far|share|v3|v6) ' /proc/mounts; ls -d /dev/nvme1* /sys/module/peerdma_rdma /sys/module/peerdma_nfs 2>/dev/null)"
same "and there" "" "$(far 'ls -A /sys/kernel/config/nvmet/subsystems /sys/kernel/config/nvmet/ports | grep -v :; grep -s . /var/lib/nfs/etab; cat /proc/fs/nfsd/threads | grep -vx 0')"
dismiss

# The last paragraph's commands, with the modules where the package installs them.
mkdir -p $tree/upper $tree/work
modprobe -d "$LAB_KERNEL" overlay
mount -t overlay -o lowerdir=/lib/modules,upperdir=$tree/upper,workdir=$tree/work overlay /lib/modules || bail "no /lib/modules to write to"
mkdir "/lib/modules/$(uname -r)/updates"
cp "${LAB_MODULE%/*}"/*.ko "/lib/modules/$(uname -r)/updates/"
depmod
mount -t tmpfs none /etc/modprobe.d
sed -n '/rdma/s/^#softdep/softdep/p' "$LAB_ROOT/scripts/peerdma.modprobe" >/etc/modprobe.d/mine.conf
loaded() { (cd /sys/module && echo peerdma_*); }
modprobe -r nvme-rdma rpcrdma
modprobe nvme-rdma
same "with the lines for modprobe nvme_rdma comes with ours" peerdma_rdma "$(loaded)"
modprobe -r nvme-rdma
modprobe rpcrdma
same "and rpcrdma with both" "peerdma_nfs peerdma_rdma" "$(loaded)"
rmmod peerdma_nfs peerdma_rdma
umount /etc/modprobe.d /lib/modules
umount /lib/modules
rmdir /mnt/{far,share,v3,v6}
rm -r $tree
rdma link del rxe0
plan $tap_n
