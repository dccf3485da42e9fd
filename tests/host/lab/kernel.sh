#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The lab refuses an unknown kernel or build in one line, before it fetches, unpacks or builds anything.
. "$(dirname "$0")/../tap.sh"
cd "$root" || exit 1
temporary

refuses() {
	local status=0 said
	said=$(XDG_CACHE_HOME=$tmp PEERDMA_CACHE='' KSRC='' qemu/kernel.sh "$@" 2>&1) || status=$?
	if [ "$status" = 1 ] && [ "$(wc -l <<<"$said")" = 1 ] && [ -z "$(ls "$tmp")" ]; then
		ok "kernel.sh $*"
	else
		not_ok "kernel.sh $*" "status $status, it left $(ls "$tmp"): $said"
	fi
}

refuses path
refuses path 6.1
refuses path 7.1
refuses path bogus
refuses have 6.13
refuses path "$(. scripts/common.sh && newest_kernel)" typo
finish
