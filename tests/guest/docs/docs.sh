#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Runs the documentation's commands for a guest. Each block must end as its tag says (Documentation/contributing.md).
# The commands are typed verbatim in a folder that looks like the tree. sudo runs its command, make prints what is
# built, oci.py replaces podman and docker by crun, and a stand-in replaces NVIDIA's driver, nvidia-uvm.
# group: cli
# topologies: switch
# tier: all
# kernels: newest
# because: what a page says to type, which is the same on each kernel
# variants: plain
# needs: CONFIG_CGROUP_DMEM CONFIG_OVERLAY_FS crun
# timeout: 500
. "$LAB_ROOT/tests/guest/lib.sh"
. "$LAB_ROOT/tests/guest/typed.sh"

gpu=$(gpu_bdf)
like_the_tree guest
ln -sf "$LAB_BUILD/bin/example" $tree/tree/example
# Run them as a member of the group.
stands_for podman 'exec setpriv --groups "$(getent group peerdma | cut -d: -f3)" "$LAB_ROOT/tests/guest/docs/oci.py" "$@"'
stands_for docker 'exec "$LAB_ROOT/tests/guest/docs/oci.py" "$@"'
# From here on the GPU belongs to the stand-in for NVIDIA's driver, and CUDA is a stand-in too. A program finds cuFile
# where the page says.
cp "$LAB_BUILD/bin/registered" $tree/
stands_for modprobe '[ "$*" = nvidia-uvm ] || exec modprobe "$@"
insmod "${LAB_MODULE%/*}/kmod/nvstand.ko" && echo nvstand >'"/sys/bus/pci/devices/$gpu/driver_override && echo $gpu"' >/sys/bus/pci/drivers_probe'
printf '#!/bin/bash\nSOFTGPU_STAND=%s LD_LIBRARY_PATH=%s exec setarch -R %s whole "$@"\n' "$gpu" "$LAB_BUILD/tests/softgpu" \
	$tree/registered >$tree/tree/program
chmod +x $tree/tree/program
# With the group and the file that a page tells the reader to create.
modprobe -d "$LAB_KERNEL" overlay
mkdir -p $tree/etc/upper $tree/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=$tree/etc/upper,workdir=$tree/etc/work overlay /etc || bail "no /etc to write to"
sed -i '/^peerdma:/d' /etc/group
"$LAB_ROOT/scripts/group.sh" >/dev/null || bail "no group"
gid=$(getent group peerdma | cut -d: -f3)
mkdir -p /etc/cdi
python3 "$LAB_ROOT/scripts/docs.py" --block CDI | sed "s/997/$gid/" >/etc/cdi/peerdma.json
check "the page's CDI file has the group's number" grep -q "additionalGids.*\[$gid\]" /etc/cdi/peerdma.json

mount_disk
pattern fill /mnt/disk/file.bin 0 5000003 pattern:1
sync
page=''
as_booted() {
	[ ! -d /sys/module/nvstand ] || soon 5 rmmod nvstand || bail "nvstand stays"
	afresh
}
for block in $tree/blocks/*.sh; do
	name=${block##*/}
	IFS=- read -r _ this _ <<<"$name"
	read -r _ _ _ options <"$block" # "# run: guest, published"
	# A page starts on a freshly booted host; its blocks run in order.
	[ "$this" = "$page" ] || as_booted
	page=$this
	[[ $options != *published* ]] || { publish; chgrp peerdma /dev/peerdma; } # elsewhere udev's rule does this
	check "${name#*-}" typed "$block"
done

# The module's own output confirms what the commands did.
as_booted
publish
same "the example reads" "1048576 bytes, 1048576 of them direct, at BAR offset 0" "$("$LAB_BUILD/bin/example" /mnt/disk/file.bin)"

# A container has only what it was given. Checked by crun, with the page's own commands.
chgrp peerdma /dev/peerdma
oci() { "$LAB_ROOT/tests/guest/docs/oci.py" run --rm "${@:2}" IMAGE bash -c "$1" 2>&1; }
same "in one: no node, no group, no capability, and no /sys" "1000 0000000000000000 no no" \
	"$(oci 'echo $(id -G) $(sed -n "s/^CapEff:.//p" /proc/self/status) $(ls -d /dev/peerdma /sys 2>/dev/null || echo no no)')"
same "with the device by CDI: the node as the host's, and the group" "1000 $gid 0 $gid 660" \
	"$(oci 'echo $(id -G) $(stat -c "%u %g %a" /dev/peerdma)' --device peerdma.local/memory=all)"
same "which is the host's own" "$(stat -c %t:%T /dev/peerdma)" "$(oci 'stat -c %t:%T /dev/peerdma' --device peerdma.local/memory=all)"
check "then a file is read, direct" grep -q '^route *direct' <<<"$(oci 'peerdma cp /mnt/disk/file.bin gpu:' --device peerdma.local/memory=all -v /mnt/disk:/mnt/disk)"
check "without the group the node does not open" grep -q 'Permission denied' <<<"$(oci 'peerdma explain /mnt/disk/file.bin' --device /dev/peerdma -v /mnt/disk:/mnt/disk)"
check "without the node there is none" grep -q 'No such file or directory' <<<"$(oci 'peerdma explain /mnt/disk/file.bin' -v /mnt/disk:/mnt/disk)"
check "and check says what a container wants" grep -q -- '--device /dev/peerdma' <<<"$(oci 'peerdma check --verbose')"
# The pod of the page.
pod() { python3 "$LAB_ROOT/scripts/docs.py" --block pod | sed "s/997/$gid/; $1" | "$LAB_ROOT/tests/guest/docs/oci.py" pod 2>&1; }
if /usr/bin/python3 -c 'import yaml' 2>/dev/null; then
	out=$(pod '')
	same "the page's pod: it explains, direct" "0 1" "$? $(grep -c '^route *direct' <<<"$out")"
	diag "$out"
	check "without its group the node does not open" grep -q 'Permission denied' <<<"$(pod "s/\[$gid\]/[]/")"
else
	skip "the page's pod" "python3-yaml is not here"
fi
chgrp 0 /dev/peerdma
umount /etc
rmdir /sys/fs/cgroup/jobs
echo -dmem >/sys/fs/cgroup/cgroup.subtree_control
rm -rf $tree /mnt/disk/file.bin /mnt/disk/copy.bin
plan $tap_n
