#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make compiles an object again when one of its headers is newer, whether ccache had the object or not.
. "$(dirname "$0")/../tap.sh"
temporary -p "$build"
PEERDMA_CACHE=$tmp/cache CCACHE_DIR=$tmp/ccache
export PEERDMA_CACHE CCACHE_DIR
. "$root/scripts/common.sh"

# is_made OBJECT [HEADER]: whether make would not compile it, after the header has changed
is_made() { make --no-print-directory -q -C "$root/$part" BUILD="$tmp" ${2:+-W "../$2"} "$tmp/$1" 2>/dev/null; }
[ -n "${CCACHE_BASEDIR:-}" ] || skip "with ccache" "it is not installed"
while read -r part object header; do
	for how in compiled "had by ccache"; do
		rm -f "$tmp/$object"
		check "$object, $how: it is made" make --no-print-directory -s -C "$root/$part" BUILD="$tmp" "$tmp/$object"
		check "$object, $how: not once more" is_made "$object"
		check "$object, $how: once more when $header has changed" eval "! is_made $object $header"
	done
	[ -z "${CCACHE_BASEDIR:-}" ] || check "$object: the second time by ccache" [ "$(ccache --print-stats | awk '$1 == "direct_cache_hit" { print $2 }')" -gt 0 ]
	[ -z "${CCACHE_BASEDIR:-}" ] || ccache -z >/dev/null
done <<'EOF'
user obj/user/lib/version.o include/peerdma.h
tests obj/bin/second_request.o include/uapi/peerdma.h
tests obj/kernel/base/checks.o kernel/base/checks.h
EOF
finish
