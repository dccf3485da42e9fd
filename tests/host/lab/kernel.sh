#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The lab refuses an unknown kernel or build in one line, before it fetches, unpacks or builds anything.
set -u
cd "$(dirname "$0")/../../.." || exit 1
cache=$(mktemp -d)
trap 'rm -rf "$cache"' EXIT
n=0

refuses() {
	local status=0 said
	n=$((n + 1))
	said=$(XDG_CACHE_HOME=$cache PEERDMA_CACHE='' KSRC='' qemu/kernel.sh "$@" 2>&1) || status=$?
	if [ "$status" = 1 ] && [ "$(wc -l <<<"$said")" = 1 ] && [ -z "$(ls "$cache")" ]; then
		echo "ok $n - kernel.sh $*"
	else
		echo "not ok $n - kernel.sh $*"
		echo "# status $status, it left $(ls "$cache"): $said"
	fi
}

refuses path
refuses path 6.1
refuses path 7.1
refuses path bogus
refuses have 6.13
refuses path "$(. scripts/common.sh && newest_kernel)" typo
echo "1..$n"
