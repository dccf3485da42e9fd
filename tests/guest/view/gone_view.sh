#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The storage node loses its power while a view of its files is read into the GPU's memory and by `peerdma view read`. Both reads end with
# EIO by the host's timeouts. Afterwards no byte may arrive in the GPU's memory, and there is no file of what came.
# group: view
# topologies: switch
# variants: plain
# tier: all
# long: oldest
# peer: views storage
# needs: CONFIG_BLK_DEV_UBLK CONFIG_BLK_DEV_DM rdma
# timeout: 300
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/rdma.sh"

publish
kernel_has nvme-rdma
plug
insert peerdma_rdma
echo 1 >$software
misses_peer_soon

said=$(host hear ready 120) || bail "no storage node: $said"
read -r _ prefix me <<<"$said"
# Three tries to connect again, each of which takes some seconds.
options=reconnect_delay=5,ctrl_loss_tmo=15,fast_io_fail_tmo=1,keep_alive_tmo=5,transport=rdma,traddr=$far_ip,trsvcid=4420
controller=$(connect "$options,nqn=${prefix}tokens,hostnqn=$me,hostid=${me##*:}") || bail "no connection"
disk=$(disk_of "${prefix}tokens") || bail "no disk"

# The storage node makes its file in the same way.
"$LAB_ROOT/tests/guest/view/image.py" halves /tmp/tokens 6
check "all is well" peerdma view read "$disk" --count 65536 --output /tmp/some
check "each element" cmp /tmp/some <(head -c 262144 /tmp/tokens)
blockdev --flushbufs "$disk"

# The view has 3 MiB. Its service has the first one in memory; the others wait for the drive.
len=$((3 * mib))
check "the storage node's drive stops answering" far "cold && dmsetup suspend --noflush --nolockfs drive"
begins /tmp/lost read "$disk" 4096 $len 0 $len "host fill gpu0 %AT $len pattern:9 >/dev/null"
check "a read into the GPU's memory is under way" kill -0 $begun
mkdir /tmp/out
peerdma view read "$disk" --output /tmp/out/tokens >/tmp/said 2>&1 &
reader=$!
check "peerdma view read is under way" soon 60 waits $reader
some_came() { host compare gpu0 0 $len pattern:9 | grep -q differs; }
check "some bytes have come" soon 20 some_came

host cut >/dev/null
check "the power goes: the read into the GPU's memory ends" soon 60 ended $begun
read -r got _ </tmp/lost
same "with EIO" $EIO "$got"
soon 60 ended $reader || bail "peerdma view read does not end"
wait $reader
check "peerdma view read fails" [ $? != 0 ]
check "and names the elements" grep -q "cannot read elements .*: Input/output error" /tmp/said
diag "$(cat /tmp/said)"
same "it leaves no file" '' "$(ls -A /tmp/out)"

# The next user of this memory must see no stray writes.
host fill gpu0 0 $len pattern:7 >/dev/null
check "the controller goes" soon 60 no_controller "$controller"
disk_goes() { [ ! -b "$disk" ]; }
check "and the disk" soon 20 disk_goes
check "nothing came afterwards" host compare gpu0 0 $len pattern:7
check "peerdma_rdma.ko goes" rmmod peerdma_rdma
rdma link del rxe0
plan $tap_n
