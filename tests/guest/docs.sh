#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The commands of the documentation that are for a guest: each block ends as its tag says (Documentation/contributing.md).
# They are typed as they stand, in a folder that looks like the tree; sudo runs its command, and make says what is built.
# group: cli
# topologies: switch
# kernels: 7.2
# because: what a page says to type, which is the same on each kernel
# variants: plain
# needs: CONFIG_CGROUP_DMEM
# timeout: 180
. "$LAB_ROOT/tests/guest/lib.sh"

tree=/run/docs
mkdir -p $tree/bin $tree/blocks $tree/tree
for entry in "$LAB_ROOT"/*; do ln -sfn "$entry" "$tree/tree/${entry##*/}"; done
ln -sfn "$LAB_BUILD" $tree/tree/build
ln -sf "$LAB_BUILD/bin/example" $tree/tree/example
printf '#!/bin/bash\nexec "$@"\n' >$tree/bin/sudo
printf '#!/bin/bash\ncase $1 in tools) ;; module) echo "$LAB_MODULE" ;; *) exit 2 ;; esac\n' >$tree/bin/make
chmod +x $tree/bin/*
python3 "$LAB_ROOT/scripts/docs.py" --guest $tree/blocks || bail "no blocks"

mount_disk
pattern fill /mnt/disk/file.bin 0 5000003 pattern:1
sync
page=''
for block in $tree/blocks/*.sh; do
	name=${block##*/}
	IFS=- read -r _ this _ <<<"$name"
	read -r _ _ _ options <"$block" # "# run: guest, published"
	# A page begins as a host that has just booted; its blocks follow each other.
	[ "$this" = "$page" ] || afresh
	page=$this
	[[ $options != *published* ]] || publish
	status=0
	out=$(cd $tree/tree && PATH=$tree/bin:$PATH bash -euo pipefail "$block" 2>&1) || status=$?
	want=0
	[[ ! $options =~ status\ ([0-9]+) ]] || want=${BASH_REMATCH[1]}
	[[ $out != *"not ok"* ]] || status="$status, and a test in it failed"
	same "${name#*-}" "$want" "$status"
	[ "$want" = "$status" ] || diag "$out"
done

# They have done what they say, by the module's own word.
afresh
publish
same "the example reads" "1048576 bytes, 1048576 of them direct, at BAR offset 0" "$("$LAB_BUILD/bin/example" /mnt/disk/file.bin)"
rmdir /sys/fs/cgroup/jobs
echo -dmem >/sys/fs/cgroup/cgroup.subtree_control
rm -rf $tree /mnt/disk/file.bin /mnt/disk/copy.bin
plan $tap_n
