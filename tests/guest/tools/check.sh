#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# peerdma check on real topologies: its prediction for the pair before the module is loaded, and the kernel's verdict,
# which must agree, afterwards.
# group: cli
# topologies: switch rp rp-intel rp-vtd mf-vtd
# variants: plain
# timeout: 120
# long: oldest
. "$LAB_ROOT/tests/guest/lib.sh"

gpu=$(gpu_bdf)
disk=$(nvme_disk)
afresh
mount_disk

as=()
declare -A found
# ask [TARGET...]: exit status and states by item, in said; what was found; the first line. Forks only the command.
ask() {
	local state id rest
	"${as[@]}" peerdma check --verbose "$@" >/tmp/answer
	said="$? "
	found=()
	read -r headline </tmp/answer
	while read -r state id rest; do
		case $state in good | warn | bad | unknown) said+="$id=$state " found[$id]+=$rest ;; esac
	done </tmp/answer
}
# headline PATTERN: the first line starts with it
headline() { [[ $headline == "$1"* ]] || { echo "$headline"; return 1; }; }
# screen TARGET...: the output without --verbose must fit into the allowed lines and columns; its first line is the same
screen() {
	"${as[@]}" peerdma check "$@" >/tmp/screen || true
	local lines columns first
	lines=$(wc -l </tmp/screen) columns=$(wc -L </tmp/screen)
	read -r first </tmp/screen
	if [ "$lines" -gt 24 ] || [ "$columns" -gt 100 ] || [ "$first" != "$headline" ]; then
		cat /tmp/screen
		return 1
	fi
}
has() { [[ " $said" == *" $1 "* ]] || { echo "$said: ${found[${1%%=*}]}"; return 1; }; }
says() { [[ ${found[$1]} == *"$2"* ]] || { echo "${found[$1]}"; return 1; }; }

# The kernel's expected verdict: mapping, the host bridge, the IOMMU, ACS
case $LAB_TOPOLOGY in
switch) map="bus address" bridge=good iommu=good acs=good early=good ;;
rp) map="host bridge" bridge=good iommu=good acs=good early=good ;;
rp-intel) map="" bridge=bad iommu=good acs=good early=unknown ;;
rp-vtd) map=iova bridge=good iommu=warn acs=good early=good ;;
mf-vtd) map=iova bridge=good iommu=warn acs=warn early=good ;;
esac

ask /mnt/disk "$gpu"
check "without the module" has module=bad
same "it is not ready" 1 "${said%% *}"
check "the first line says what stands in the way" headline "cannot work here yet: peerdma is not loaded"
check "without the module: one screen" screen /mnt/disk "$gpu"
for item in config=good bar=good memtype=good driver=good disks=good filesystem=good stack=good multipath=good signing=good container=good \
	route=unknown bridge=$early iommu=$iommu acs=$acs; do
	check "without the module: $item" has "$item"
done
check "it found the drive below the filesystem" says disks "${disk#/dev/} (pcie) below /mnt/disk"

publish
for target in "" "/mnt/disk" "$disk" "/mnt/disk $gpu"; do
	# shellcheck disable=SC2086
	ask $target
	check "check $target: module, node, providers" has "module=good node=good container=good providers=good"
	check "check $target: bridge" has bridge=$bridge
	check "check $target: what is published is uncached" says memtype uncached
	check "check $target: ACS, IOMMU" has "iommu=$iommu acs=$acs"
	if [ -n "$map" ]; then
		check "check $target: the route" has route=good
		check "check $target: its mapping" says route "$map"
		check "check $target: the first line" headline "ready for direct I/O"
		same "check $target: ready" 0 "${said%% *}"
	else
		check "check $target: the route" has route=bad
		check "check $target: its reason" says route DISTANCE
		# The drive is named as on the command line.
		name=${disk#/dev/}
		[ "$target" != "$disk" ] || name=$disk
		check "check $target: the first line" headline "works, bounced: $name: no (DISTANCE"
		same "check $target: not ready" 1 "${said%% *}"
	fi
done
if [ "$LAB_TOPOLOGY" = mf-vtd ]; then check "which bridge redirects" says acs "redirects at 0000:00:"; fi
cp /etc/passwd /tmp/elsewhere
check "one screen" screen /mnt/disk "$gpu"
ask /tmp/elsewhere
check "a file of tmpfs" has filesystem=bad
check "of tmpfs: the first line" headline "works, bounced: tmpfs (FILESYSTEM"
check "and its route" has route=bad
peerdma check "$gpu" "$(nvme_bdf)" >/dev/null 2>&1
same "two PCI addresses are a usage error" 2 $?
# Without root the ACS state cannot be read; the command says so.
as=(setpriv --reuid 65534 --regid 65534 --clear-groups)
case $LAB_TOPOLOGY in rp | rp-intel | rp-vtd) seen=good ;; *) seen=unknown ;; esac
ask "$gpu"
check "as nobody: ACS" has acs=$seen
check "as nobody: the node" has node=bad
check "as nobody: what is mapped how" has memtype=unknown
as=()
ask "$gpu"
# The JSON output has the same content.
same "json" "${said#* }" "$(peerdma check --json "$gpu" | sed -n 's/^      "\(id\|state\)": "\(.*\)",$/\2/p' | paste -sd '= ' -) "
plan $tap_n
