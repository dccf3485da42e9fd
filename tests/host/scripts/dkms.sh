#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# The file that tells DKMS about the modules (scripts/debian/peerdma-dkms.dkms), sourced by a shell as DKMS does. It
# names what kernel/Kbuild builds. Without the kernel's headers it names what was built for that kernel, so that DKMS
# removes it. tests/packages.sh runs DKMS itself.
. "$(dirname "$0")/../tap.sh"
temporary
sed 's/#MODULE_VERSION#/1.2/' "$root/scripts/debian/peerdma-dkms.dkms" >"$tmp/dkms.conf"

# named: the modules, sorted; each has all settings that DKMS requires. DKMS defines the variables' names.
named() {
	(
		# shellcheck disable=SC2034 # used by dkms.conf
		kernelver=7.2.13 arch=x86_64 kernel_source_dir=$tmp/headers dkms_tree=$tmp/tree
		# shellcheck source=/dev/null
		. "$tmp/dkms.conf"
		# shellcheck disable=SC2153
		for i in "${!BUILT_MODULE_NAME[@]}"; do
			[ "${BUILT_MODULE_LOCATION[i]}" = kernel ] && [ "${DEST_MODULE_LOCATION[i]}" = /updates/dkms ] || echo "incomplete $i"
			echo "${BUILT_MODULE_NAME[i]}"
		done
		# DKMS counts from 0 without gaps.
		[ "${!BUILT_MODULE_NAME[*]}" = "$(seq -s ' ' 0 $((${#BUILT_MODULE_NAME[@]} - 1)))" ] || echo "a gap: ${!BUILT_MODULE_NAME[*]}"
	) 2>&1 | sort | paste -sd ' '
}

# built OPTION...: the modules that Kbuild builds with these options
built() {
	printf 'src := %s/kernel\nsrctree := %s/headers\ninclude %s/kernel/Kbuild\nall:\n\t@echo $(patsubst %%.o,%%,$(obj-m))\n' \
		"$root" "$tmp" "$root" | make --no-print-directory -s -f - all "$@" 2>&1 | tr ' ' '\n' | sort | paste -sd ' '
}

rdma=CONFIG_INFINIBAND_ADDR_TRANS xprt=CONFIG_SUNRPC_XPRT_RDMA nfs=CONFIG_NFS_FS
for options in "" "$rdma=y" "$rdma=y $xprt=m" "$rdma=y $nfs=m" "$rdma=y $xprt=m $nfs=m" "$rdma=y $xprt=y $nfs=y"; do
	mkdir -p "$tmp/headers/include/config"
	printf '%s\n' CONFIG_PCI_P2PDMA=y $options >"$tmp/headers/include/config/auto.conf"
	# shellcheck disable=SC2086 # words
	same "with headers, ${options:-no option}: what Kbuild builds" "$(built $options)" "$(named)"
done

# DKMS has a folder for each kernel. Compressed modules have another suffix.
rm -r "$tmp/headers"
same "without headers and before anything was built" "peerdma peerdma_nvidia" "$(named)"
for kernel in 7.2.13 6.12.95; do mkdir -p "$tmp/tree/peerdma/1.2/$kernel/x86_64/module"; done
built=$tmp/tree/peerdma/1.2/7.2.13/x86_64/module
touch "$built"/peerdma{,_nvidia}.ko "$tmp"/tree/peerdma/1.2/6.12.95/x86_64/module/peerdma{,_nvidia,_rdma,_nfs}.ko
same "headers gone, none but the two were built for this kernel" "peerdma peerdma_nvidia" "$(named)"
touch "$built/peerdma_nfs.ko.xz"
same "headers gone, one more was built" "peerdma peerdma_nfs peerdma_nvidia" "$(named)"
touch "$built/peerdma_rdma.ko"
same "headers gone, all were built" "peerdma peerdma_nfs peerdma_nvidia peerdma_rdma" "$(named)"
# A module that the present headers cannot build must not be listed, even if it was built before.
mkdir -p "$tmp/headers/include/config" && touch "$tmp/headers/include/config/auto.conf"
same "headers are back, of a kernel without RDMA" "peerdma peerdma_nvidia" "$(named)"
finish
