# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# What both guests of `make demo-rdma` that have a GPU do, and tell the host.

# mark, recorded: bytes at the GPU and elsewhere in QEMU's record of the drives' DMA since the mark, as N/N; where no drive's function
# moves them: -
mark() { :; }
recorded() { echo -; }

# takes WAY FILE: copies FILE into the GPU's memory as a user would. The host then compares the memory, before it is
# reused.
takes() {
	local json
	mark
	json=$(peerdma cp "$2" gpu: --json)
	check "$1: read" host took "$1" "$(recorded) ${json//$'\n'/ }"
}

# gives WAY FILE: writes to FILE what the host has put into the GPU's memory
gives() {
	local wrote
	mark
	wrote=$(pdio write "$2" 0 "$DEMO_SIZE" 0 "$DEMO_ROOM" "host fill gpu0 %AT $DEMO_SIZE $DEMO_COPY")
	check "$1: write" host gave "$1" "$(recorded) $(tail -n 1 <<<"$wrote")"
}

# both_ways WAY FOLDER
both_ways() {
	takes "$1" "$2/file"
	gives "$1" "$2/copy"
	sync "$2/copy"
}

# placed WAY: tells the host the extents (from stdin) of the new file on the storage node's drive
placed() { host placed "$1" "$(tr '\n' ' ')" >/dev/null; }
