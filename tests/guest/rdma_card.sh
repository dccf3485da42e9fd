# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by rdma.sh: the network card whose own DMA engine moves the bytes (tests/kmod/dmacard_rdma.h).

# card_begins IP [SERIAL]: the function of the drive (nvme0) becomes an RDMA card, both ends of which are in this guest
# (tests/kmod/dmacard_rdma.h). The last blocks of the drive are scratch. Its PCI address is in $card. The first one is dmacard0 and
# card0, the next one dmacard1 and card1.
card_begins() {
	local pci=/sys/bus/pci number=${#cards[@]} serial=${2:-nvme0}
	card=$(nvme_bdf "$serial")
	cards+=("$card")
	card_drives+=("$serial")
	[ "$(size_of_ext4 "$(AT_HOME=1 nvme_disk "$serial")")" = 0 ] || card_filesystems+=("$serial")
	[ -d /sys/module/dmacard ] || insmod "$(dirname "$LAB_MODULE")/kmod/dmacard.ko" || bail "dmacard.ko"
	echo "$card" >"$pci/devices/$card/driver/unbind"
	echo dmacard >"$pci/devices/$card/driver_override"
	echo "$card" >$pci/drivers_probe
	check "$serial: there is an RDMA device of it" [ -d "/sys/class/infiniband/dmacard$number" ]
	ip addr add "$1/24" dev "card$number"
	ip link set "card$number" up
	straight() { echo "0 0 $1 $1 0 0"; } # from here on: direct, unlike over soft-RoCE
}
cards=() card_drives=() card_filesystems=()
# size_of_ext4 DISK: in bytes; 0 without one
size_of_ext4() { dumpe2fs -h "$1" 2>/dev/null | awk '/^Block count/ { n = $3 } /^Block size/ { size = n * $3 } END { print size + 0 }'; }

# card_drive, no_card_drive: as far_drive and no_far_drive (nvmeof.sh), by the card
card_drive() {
	kernel_has nvmet nvmet-rdma nvme-rdma
	finds_cards
	far_ip=10.9.1.1
	! mountpoint -q /mnt/disk || umount /mnt/disk
	card_begins $far_ip nvme3 # the drive that is held back is nvme0
	goes_far nvme0
}
no_card_drive() {
	come_home
	cards_end
}

# own_drive DRIVE, no_own_drive DRIVE: until the second, a drive of this guest, which is not the card's, is FAR_nvme0 for what is carried,
# through the card of card_begins $ip. What was on it is gone then.
# shellcheck disable=SC2154 # the test assigns $ip, nvmeof.sh $patient
own_drive() {
	target far "$1"
	port 1 far rdma ipv4 $ip
	controller=$(connect "$patient,transport=rdma,traddr=$ip,trsvcid=4421,nqn=far") || bail "no connection"
	FAR_nvme0=$(disk_of far) || bail "no disk"
	export FAR_nvme0 FAR_PCI=$card
}
no_own_drive() {
	unset FAR_nvme0 FAR_PCI
	disconnect "$controller"
	soon 20 no_controller "$controller" || not_ok "the controller goes"
	no_targets
	wipefs -qa "$1"
	rmmod peerdma_rdma
	cards_end
}

# unbind_card, bind_card IP: the first card has no driver for a while
unbind_card() { echo "${cards[0]}" >/sys/bus/pci/drivers/dmacard/unbind && [ ! -e /sys/class/infiniband/dmacard0 ]; }
bind_card() {
	echo "${cards[0]}" >/sys/bus/pci/drivers_probe && [ -d /sys/class/infiniband/dmacard0 ] &&
		ip addr add "$1/24" dev card0 && ip link set card0 up
}

# recorded CARD [read|write|all [GPU [first]]]: how many bytes the card's own record has in that direction at the BAR of a GPU, the first
# one if none is given, and how many elsewhere. A record that was too short has only the first ones. record_anew CARD: empties it.
recorded() {
	local first last
	read -r first last _ < <(sed -n 3p "/sys/bus/pci/devices/${3:-$(gpu_bdf)}/resource")
	awk -v first="$((first))" -v last="$((last))" -v way="${2:-all}" -v part="${4:-}" '
		$1 == "lost" { if (part) next; print "lost", $2; exit }
		way != "all" && $1 != way { next }
		$2 >= first && $2 <= last { there += $3; next }
		{ elsewhere += $3 }
		END { print there + 0, elsewhere + 0 }' "/sys/kernel/debug/dmacard-$1/record"
}
record_anew() { echo >"/sys/kernel/debug/dmacard-$1/record"; }
# at_gpu CARD [GPU]: how many bytes it was told to read there, and how many to write
at_gpu() {
	local way told=()
	for way in read write; do told+=("$(recorded "$1" $way "${2:-}" | cut -d' ' -f1)"); done
	echo "${told[*]}"
}

# at_mapped CARD COMMAND...: runs the command, a request of more than a page; then how many bytes the card was told to read (by a request
# that writes) and to write (by one that reads) at the DMA addresses by which the kernel meanwhile mapped pages of the first GPU's BAR for
# it, and how many bytes QEMU has seen mapped there. Behind an IOMMU these are not the BAR's own.
at_mapped() {
	local trace=/sys/kernel/tracing/instances/mapped start len line addr i addrs sizes pages ranges told
	read -r start len <<<"$(gpu_bar)"
	mkdir $trace
	record_anew "$1"
	host dma-mark >/dev/null
	echo 1 >$trace/events/dma/dma_map_sg/enable
	"${@:2}"
	echo 0 >$trace/events/dma/dma_map_sg/enable
	echo "0 0" >/tmp/mapped
	while read -r line; do
		[[ $line =~ dma_map_sg:\ $1\ .*dma_addrs=\{(.*)\}\ sizes=\{(.*)\}\ phys_addrs=\{(.*)\} ]] || continue
		IFS=, read -ra addrs <<<"${BASH_REMATCH[1]}"
		IFS=, read -ra sizes <<<"${BASH_REMATCH[2]}"
		IFS=, read -ra pages <<<"${BASH_REMATCH[3]}"
		[ "${sizes[*]}" != 0x1000 ] || continue # PeerDMA's trial of a page, whose address is free again
		for addr in "${pages[@]}"; do [ $((addr - start)) -ge 0 ] && [ $((addr - start)) -lt "$len" ] || continue 2; done
		for i in "${!addrs[@]}"; do echo "$((addrs[i])) $((addrs[i] + sizes[i]))" >>/tmp/mapped; done
	done <$trace/trace
	rmdir $trace
	told=$(awk 'NR == FNR { first[NR] = $1; end[NR] = $2; next }
		{ for (i in first) if ($2 >= first[i] && $2 + $3 <= end[i]) { bytes[$1] += $3; break } }
		END { print bytes["read"] + 0, bytes["write"] + 0 }' /tmp/mapped "/sys/kernel/debug/dmacard-$1/record")
	mapfile -t ranges < <(sort -u /tmp/mapped | tr ' ' :)
	read -r _ line < <(host dma-at "${ranges[@]}")
	echo "$told $line"
}

# round_trip DESCRIPTION FILE OFF LEN: bytes that the host put into the GPU's memory go direct to a file or a drive, and from there over
# other bytes in the GPU's memory. The host compares them: moves() fills and compares the file in this guest.
round_trip() {
	same "$1, there: it goes direct" "$(straight "$4") 0" "$(pdio write "$2" "$3" "$4" 0 "$4" "host fill gpu0 %AT $4 pattern:8")"
	[ ! -b "$2" ] || blockdev --flushbufs "$2"
	same "$1, and back: it goes direct" "$(straight "$4") 0" "$(pdio read "$2" "$3" "$4" 0 "$4" "host fill gpu0 %AT $4 byte:9")"
	check "$1, and back: the host has its own bytes" host compare gpu0 0 "$4" pattern:8
}

# moves_by DESCRIPTION FILE LEN CARD OTHER: a write and a read go direct, once each at the GPU by one card's record, and not by the other's
moves_by() {
	record_anew "$4"
	record_anew "$5"
	moves "$1" "$2" 0 "$3"
	same "$1: at the GPU, by that card" "$3 $3" "$(at_gpu "$4")"
	same "$1: at the GPU, by the other one" "0 0" "$(at_gpu "$5")"
}

# cards_end: the functions are the drives again
cards_end() {
	local pci=/sys/bus/pci each disk room size
	for each in "${cards[@]}"; do
		echo "$each" >$pci/drivers/dmacard/unbind
		echo >"$pci/devices/$each/driver_override"
	done
	check "dmacard.ko can be removed" rmmod dmacard
	for each in "${cards[@]}"; do echo "$each" >$pci/drivers_probe; done
	for each in "${card_drives[@]}"; do
		check "$each: the drive is back" soon 20 nvme_disk "$each"
	done
	for each in "${card_filesystems[@]}"; do
		disk=$(nvme_disk "$each")
		room=$(($(blockdev --getsize64 "$disk") - (4 << 20)))
		size=$(size_of_ext4 "$disk")
		check "$each: its filesystem is there" [ "$size" -gt 0 ]
		# One that a test before this one made over the whole drive has lost its last blocks.
		[ "$size" -le $room ] || mke2fs -q -F -t ext4 "$disk" $((room >> 20))M
		mount_disk "$each"
		check "$each: its filesystem can be mounted" mountpoint -q /mnt/disk
		umount /mnt/disk
	done
	cards=() card_drives=() card_filesystems=()
}
