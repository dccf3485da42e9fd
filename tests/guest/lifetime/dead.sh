#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# A drive does not come back from a reset; its driver gives up but stays bound. A request on an open file must be
# refused, without an endless search for a route.
# group: lifetime
# topologies: switch
# variants: plain
. "$LAB_ROOT/tests/guest/lib.sh"

drive=$(nvme_bdf)
device=/sys/bus/pci/devices/$drive
controller=$(echo "$device"/nvme/nvme*)
publish
disk=$(nvme_disk)
same "a read of the drive" "0 0 4096" "$(pdio read "$disk" 0 4096 0 | cut -d' ' -f1-3)"

# Moves its registers away, so that the driver gets no answer.
give_up="dd if=/dev/zero of=$device/config bs=4 seek=4 count=2 conv=notrunc status=none
echo 1 >$controller/reset_controller
for i in \$(seq 100); do read -r state <$controller/state; [ \$state != dead ] || break; sleep 0.1; done"
got=$(timeout 60 pdio read "$disk" 4096 4096 0 4096 "$give_up" 2>/dev/null)
same "its driver has given it up" "dead nvme" "$(cat "$controller/state") $(basename "$(realpath "$device/driver")")"
same "a read of what was open is refused" "18 32 0" "$(cut -d' ' -f1-3 <<<"${got##*$'\n'}")"

echo 1 >"$device/remove"
echo 1 >/sys/bus/pci/rescan
for ((i = 0; i < 200; i++)); do [ ! -b "$(nvme_disk)" ] || break; sleep 0.1; done
same "a read, when the drive is back" "0 0 4096" "$(pdio read "$(nvme_disk)" 0 4096 0 | cut -d' ' -f1-3)"
plan $tap_n
