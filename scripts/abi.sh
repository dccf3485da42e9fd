#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# abi.sh [write]: compares the ABI of the libraries with user/abi. Only declarations in public headers count. For an
# intended change run abi.sh write, and commit the difference in user/abi together with the change.
set -euo pipefail
. "$(dirname "$0")/common.sh"

cd "$PEERDMA_ROOT"
scripts/user.sh lib verbs
logs=$PEERDMA_BUILD/abi
mkdir -p "$logs"

# dump NAME FILE: the declarations in public headers, without machine-dependent parts.
dump() {
	abidw --headers-dir include --drop-private-types --exported-interfaces-only --no-corpus-path --no-comp-dir-path --no-show-locs \
		--no-elf-needed --no-write-default-sizes --type-id-style hash "$PEERDMA_BUILD/lib/$1.so" | sed "s|$PEERDMA_ROOT/||" >"$2"
}

bad=0
for name in libpeerdma libpeerdma-verbs libcufile; do
	if [ "${1:-}" = write ]; then
		dump "$name" "user/abi/$name.abi"
		continue
	fi
	dump "$name" "$logs/$name.abi"
	# Additions count too: they must be kept from now on.
	abidiff "user/abi/$name.abi" "$logs/$name.abi" || { say "$name: differs from user/abi; for an intended change run scripts/abi.sh write"; bad=1; }
done
exit $bad
