#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The peerdma command on a real module, with valid and invalid command lines.
# group: cli
# topologies: switch
# kernels: newest
# because: what the command prints, which is the same on each kernel
# variants: plain
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
nvme=$(nvme_bdf)
afresh

# member PYTHON-EXPRESSION: of the JSON on standard input, called j
member() { python3 -c "import json, sys; j = json.load(sys.stdin); print($1)"; }

# fails STATUS DESCRIPTION REGEX COMMAND...: exit status, empty stdout, one line on stderr
fails() {
	local status=0 out err
	out=$("${@:4}" 2>/tmp/err) || status=$?
	err=$(cat /tmp/err)
	if [ "$status" = "$1" ] && [ -z "$out" ] && [ "$(wc -l </tmp/err)" = 1 ] && [[ $err =~ $3 ]]; then
		ok "$2"
	else
		not_ok "$2"
		diag "status $status, stdout '$out', stderr '$err'"
	fi
}

state() { peerdma check --json | member 'next(i["state"] for i in j["items"] if i["id"] == "'"$1"'")'; }

same "check without the module" bad "$(state module)"
peerdma check >/dev/null
same "and its exit status" 1 $?
fails 1 "publish without the module" "module" peerdma publish "$gpu"
load_module
same "check with the module" good "$(state module)"
fails 1 "a drive in use is not taken from its driver" "nvme" peerdma publish "$nvme"
check "and it still answers" dd if="$(nvme_disk)" of=/dev/null bs=4096 count=1 iflag=direct status=none
fails 1 "a device that is not there" "0000:7f:1f.7" peerdma publish 0000:7f:1f.7
fails 2 "no PCI address" "" peerdma publish gpu
fails 1 "a BAR that is not there" "BAR" peerdma publish "$gpu" --bar 5
same "a refused device stays without a driver" no "$([ -e "/sys/bus/pci/devices/$gpu/driver" ] && echo yes || echo no)"

mount_disk
pattern fill /mnt/disk/cli 0 3000001 pattern:8
sync
fails 1 "cp without a provider" "" peerdma cp /mnt/disk/cli gpu:
check "publish" peerdma publish "$gpu"
check "publish again is no error" peerdma publish "$gpu"
if [ -z "${FAR_nvme0:-}" ]; then # over a network the drives are not ready
	peerdma check >/dev/null
	same "check says ready" 0 $?
fi
same "providers" "$gpu 2" "$(peerdma providers --json | member 'j["providers"][0]["pci"], j["providers"][0]["bar"]' | tr -d "(),'")"

host fill gpu0 0 4194304 byte:170 >/dev/null
json=$(peerdma cp /mnt/disk/cli gpu: --json)
[ -z "${FAR_DISK:-}" ] && host=0 leaf=${FAR_PCI:-$nvme} ways="2999808 direct, 193 near, 0 host" ||
	host=3000001 leaf=None ways="0 direct, 0 near, 3000001 host"
same "cp" "3000001 $host $gpu $leaf" "$(member 'j["bytes"], j["bytes_host"], j["provider"]["pci"], j["leaf"]["pci"]' <<<"$json" | tr -d "(),'")"
check "every byte of it" host compare gpu0 0 3000001 pattern:8
fails 1 "cp of a file that is not there" "/mnt/disk/none" peerdma cp /mnt/disk/none gpu:
fails 1 "cp of a directory" "/mnt/disk" peerdma cp /mnt/disk gpu:
cp /mnt/disk/cli /tmp/cli
fails 1 "cp from tmpfs says why not" "tmpfs|filesystem" peerdma cp /tmp/cli gpu:
fails 1 "cp to a provider that is not there" "" peerdma cp /mnt/disk/cli gpu:77

same "verify" "equal: 3000001 bytes, $ways" "$(peerdma verify /mnt/disk/cli)"
fails 1 "verify of a file of tmpfs" "tmpfs|filesystem" peerdma verify /tmp/cli
# The drive changes behind the page cache, which then has stale bytes.
cat /mnt/disk/cli >/dev/null
read -r _ place _ <<<"$(extents /mnt/disk/cli)"
dd if="$(nvme_disk)" of=/run/block bs=512 skip=$((place / 512)) count=1 iflag=direct status=none
dd if=/dev/zero of="$(nvme_disk)" bs=512 seek=$((place / 512)) count=1 oflag=direct conv=notrunc status=none
said=$(peerdma verify /mnt/disk/cli)
same "verify finds what differs" 1 $?
check "and says where" grep -q "^different in the 3000001 bytes from 0 on: [0-9]* bytes differ, the first at 0: 0x00, not " <<<"$said"
dd if=/run/block of="$(nvme_disk)" bs=512 seek=$((place / 512)) count=1 oflag=direct conv=notrunc status=none
check "and when it is as it was" peerdma verify /mnt/disk/cli
# A drive that does not answer, as one whose server is gone.
modprobe -d "$LAB_KERNEL" -a dm-mod dm-zero
table slow "0 8192 zero"
slow=/dev/$(dmsetup info -c --noheadings -o blkdevname slow)
# contents [OPTION...]: what explain says of it
contents() { timeout 20 peerdma explain "$@" "$slow" >/tmp/contents && sed -n 's/^contents *//p' /tmp/contents; }
dmsetup suspend slow
same "explain does not wait for a drive that does not answer" "unknown: the drive does not answer" "$(contents)"
same "nor if it shall be read" "unknown: the drive does not answer" "$(contents --codec u32)"
dmsetup resume slow
same "and looks at one that does" "0 " "$(said=$(contents); echo $? "$said")"
check "nobody reads it any more" soon 5 dmsetup remove slow
fails 2 "an unknown subcommand" "" peerdma frobnicate
check "unpublish" peerdma unpublish "$gpu"
check "unpublish again is no error" peerdma unpublish "$gpu"
plan $tap_n
