#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# /etc/peerdma/rules: a denied request must end before the module is called, and a preferred provider must be used. Also
# peerdma topo with two providers, a near drive and a far one.
# group: cli
# topologies: paths
# variants: plain
# needs: CONFIG_OVERLAY_FS
# timeout: 120
# long: oldest
. "$LAB_ROOT/tests/guest/lib.sh"

gpu0=$(pci_of 0x1af4:0x1110 0) gpu1=$(pci_of 0x1af4:0x1110 1)
drive=$(nvme_disk) near=$(nvme_bdf) disk=$(basename "$(nvme_disk)") far=$(nvme_bdf nvme1)
dir=/mnt/disk
afresh
load_module
for gpu in "$gpu0" "$gpu1"; do peerdma publish "$gpu" >/dev/null || bail "peerdma publish failed"; done
mke2fs -q -F -t ext4 "$drive"
mount_disk
mkdir $dir/in $dir/out
pattern fill $dir/in/file 0 1000001 pattern:3
pattern fill $dir/out/file 0 1000001 pattern:4
ln -s $dir/out/file $dir/in/link
sync
modprobe -d "$LAB_KERNEL" -q overlay
mkdir -p /run/etc/upper /run/etc/work
mount -t overlay -o lowerdir=/etc,upperdir=/run/etc/upper,workdir=/run/etc/work overlay /etc || bail "no overlay over /etc"
mkdir /etc/peerdma
rules() { printf '%s\n' "$@" >/etc/peerdma/rules; }

# taken COMMAND...: prints the provider that was used, or the errno and the reason
taken() {
	if "$@" --json >/run/said 2>/dev/null; then
		seeing get /run/said /provider/pci
	else
		seeing get /run/said /error/errno /error/reason
	fi
}
denied="EACCES RULE"

# --- Providers
same "without rules none of two is taken" "ENOTUNIQ null" "$(taken peerdma cp $dir/in/file gpu:)"
same "and all is well" "there is no /etc/peerdma/rules: everything is allowed" "$(peerdma rules check)"
rules "prefer provider=$gpu1"
same "the one that is preferred" "$gpu1" "$(taken peerdma cp $dir/in/file gpu:)"
same "the other one by its name" "$gpu0" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"
rules "# the second one is another's" "deny provider=$gpu1"
same "the one that is not denied" "$gpu0" "$(taken peerdma cp $dir/in/file gpu:)"
same "the one that is" "$denied" "$(taken peerdma cp $dir/in/file "gpu:$gpu1")"
rules "deny provider=1af4:1110"
same "by vendor and device" "$denied" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"

# --- Files
rules "allow file=$dir/in" "deny"
host fill gpu0 0 1048576 byte:170 >/dev/null
same "a file that is allowed" "$gpu0" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"
check "every byte of it" host compare gpu0 0 1000001 pattern:3
same "one that is not" "$denied" "$(taken peerdma cp $dir/out/file "gpu:$gpu0")"
same "nor by a link from where it would be" "$denied" "$(taken peerdma cp $dir/in/link "gpu:$gpu0")"
check "what was denied was not brought" host compare gpu0 0 1000001 pattern:3
check "explain names the rule" grep -q "^refused by */etc/peerdma/rules:2$" <(peerdma explain $dir/out/file --provider "$gpu0")
same "the module knows no rules: who calls it himself is not kept from anything" "0 0 4096 4096 0 0" \
	"$(pdio read $dir/out/file 0 4096 0 | cut -d' ' -f1-6)"

# --- Disks
for name in "$disk" "$near"; do
	rules "deny disk=$name"
	same "what is on disk $name" "$denied" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"
	rules "allow disk=$name" "deny"
	same "and that alone" "$gpu0" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"
done
rules "deny disk=$far"
same "another disk" "$gpu0" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"

# --- Processes
mkdir -p /sys/fs/cgroup/ruled/below
inside() { bash -c 'echo $$ >/sys/fs/cgroup/ruled/below/cgroup.procs && exec "$@"' inside "$@"; }
rules "deny cgroup=/ruled"
same "a process of a cgroup below" "$denied" "$(taken inside peerdma cp $dir/in/file "gpu:$gpu0")"
same "one of another" "$gpu0" "$(taken peerdma cp $dir/in/file "gpu:$gpu0")"
same "as explained" "deny: /etc/peerdma/rules:1: deny cgroup=/ruled" "$(peerdma rules explain --provider "$gpu0" --cgroup /ruled/below)"
rules "deny disk=$near"
by_disk() { peerdma rules explain --provider "$gpu0" --file $dir/in/file --disk "$1" 2>&1; }
same "a disk by its address" "deny: /etc/peerdma/rules:1: deny disk=$near" "$(by_disk "$near")"
same "by both" "deny: /etc/peerdma/rules:1: deny disk=$near" "$(by_disk "$disk=$near")"
check "by a name that the rule does not ask for, it is not known" grep -q "line 1 needs a disk's PCI address" <(by_disk "$disk")
mkdir -p /run/upper/up /run/upper/work /run/over
mount -t overlay -o lowerdir=$dir/in,upperdir=/run/upper/up,workdir=/run/upper/work overlay /run/over || bail "no overlay"
same "a file whose disk the kernel does not name" "$denied" "$(taken peerdma cp /run/over/file "gpu:$gpu0")"
umount /run/over
rmdir /sys/fs/cgroup/ruled/below /sys/fs/cgroup/ruled

# --- Publishing
peerdma unpublish "$gpu1" >/dev/null
rules "deny provider=$gpu1"
same "publishing" "$denied" "$(taken peerdma publish "$gpu1")"
same "and the device is as it was" no "$([ -e "/sys/bus/pci/devices/$gpu1/driver" ] && echo yes || echo no)"
rules "deny provider=$gpu0"
same "publishing another" "$gpu1" "$(taken peerdma publish "$gpu1")"

# --- An invalid rule
rules "deny provider=$gpu0" "  deny gpu=$gpu1"
same "a fault opens nothing" "EBADMSG null" "$(taken peerdma cp $dir/in/file "gpu:$gpu1")"
check "and is named" grep -q "^peerdma: /etc/peerdma/rules:2:8: unknown condition 'gpu'" <(peerdma rules check 2>&1)

# --- topo
rules "deny provider=$gpu1 file=$dir/out" "allow provider=$gpu0"
mkfifo /run/holder
seeing wait </run/holder >/run/held &
held=$!
exec {holder}>/run/holder
soon 20 grep -q ready /run/held || bail "nobody holds a buffer"
peerdma topo >/run/topo
size=$(($(cut -d' ' -f2 <<<"$(gpu_bar)") >> 20))
check "topo: who publishes, and how much is free" grep -qE "^provider [0-9]+: $gpu0 \(1af4:1110, driver peerdma\) publishes $size MiB of BAR 2 at offset 0x0, $((size - 1)) MiB free$" /run/topo
same "topo: the rules that are about each" "  /etc/peerdma/rules:2: allow provider=$gpu0
  /etc/peerdma/rules:1: deny provider=$gpu1 file=$dir/out" "$(grep '^  /etc' /run/topo)"
check "topo: who has a buffer" grep -qE "^process $held seeing: 1 MiB in 1 buffer$" /run/topo
check "topo: how far to the near drive" grep -qE "^$disk \($near\) to provider [0-9]+ \($gpu1\): direct, distance 4, bus address$" /run/topo
check "topo: the far one is refused by the kernel" grep -qE "\($far\) to provider [0-9]+ \($gpu0\): refused, DISTANCE: " /run/topo
rules "deny disk=$disk"
check "topo: by a rule, and as far all the same" grep -qF "($gpu1): refused, distance 4, RULE: /etc/peerdma/rules:1" <(peerdma topo)
exec {holder}>&-
wait $held

umount /etc $dir
peerdma unpublish "$gpu1" >/dev/null
plan $tap_n
