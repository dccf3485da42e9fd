#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each library exports what its headers declare, and libpeerdma what its map lists: no more and no less.
. "$(dirname "$0")/../tap.sh"
temporary
so=$build/lib/libpeerdma.so
cufile=$build/lib/libcufile.so.0

# alike FILE FILE: and not empty
alike() { [ -s "$1" ] && diff "$1" "$2"; }

# Every library has one entry: frame_dummy of the C runtime.
starts_nothing() { [ "$(readelf -SW "$1" | sed -n 's/.* \.init_array *INIT_ARRAY *[0-9a-f]* [0-9a-f]* \([0-9a-f]*\) .*/\1/p')" = 000008 ]; }

# needs_no_newer LIBRARY VERSION: of libstdc++; the process may have loaded an older one
needs_no_newer() {
	local most
	most=$(readelf -V "$1" | grep -o 'GLIBCXX_[0-9.]*' | sort -Vu | tail -n 1)
	[ -n "$most" ] && [ "$(printf '%s\n' "$most" "$2" | sort -V | tail -n 1)" = "$2" ] || { echo "needs $most"; return 1; }
}

# declared HEADER: the functions marked as exported
declared() { tr '\n' ' ' <"$root/include/$1" | grep -o 'PEERDMA_API [^;(]*(' | grep -o 'peerdma_[a-z_]*($' | tr -d '('; }

# have_pages LIST: each function has a manual page with its name
have_pages() {
	local name missing=0
	[ -d "$tmp/man" ] || "$root/scripts/manpages.py" "$tmp/man" || return 1
	while read -r name; do
		[ -s "$tmp/man/$name.3" ] || { echo "$name"; missing=1; }
	done <"$1"
	return $missing
}

# library PREFIX SO HEADER MAP: a library of ours with symbol versions
library() {
	local prefix=$1 so=$2 name
	name=$(basename "$so")
	nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$tmp/exported"
	sed -n 's/^\t\(peerdma_[a-z_]*\);$/\1/p' "$root/user/$4" | sort >"$tmp/mapped"
	declared "$3" | sort >"$tmp/declared"
	check "${prefix}the map lists what the header declares" alike "$tmp/declared" "$tmp/mapped"
	check "${prefix}the library exports what the map lists" alike "$tmp/mapped" "$tmp/exported"
	check "${prefix}every export has the version" bash -c "! nm -D --defined-only '$so' | awk '\$2 != \"A\"' | grep -vE '@@PEERDMA_0[.][12]\$'"
	check "${prefix}its soname" bash -c "readelf -d '$so' | grep -q 'SONAME.*\\[$name.0\\]'"
	check "${prefix}no static constructors" starts_nothing "$so"
	check "${prefix}an old libstdc++ will do" needs_no_newer "$so" GLIBCXX_3.4.26
	check "${prefix}every function has a manual page" have_pages "$tmp/declared"
}

library "" "$so" peerdma.h lib/libpeerdma.map
check "no run path" bash -c "! readelf -d '$so' | grep -qE 'RPATH|RUNPATH'"
verbs=$build/lib/libpeerdma-verbs.so
library "libpeerdma-verbs: " "$verbs" peerdma_verbs.h verbs/libpeerdma-verbs.map
check "libpeerdma does without libibverbs" bash -c "! readelf -d '$so' | grep NEEDED | grep ibverbs && readelf -d '$verbs' | grep -q NEEDED.*ibverbs"

# libcufile, like the original, exports the header's functions without versions, plus our extensions and the old Close.
nm -D --defined-only "$cufile" | awk '$2 != "A" { print $3 }' | sort >"$tmp/exported"
{
	sed -n 's/^[A-Za-z].*[ *]\(cuFile[A-Za-z0-9_]*\)(.*/\1/p' "$root/include/cufile.h"
	declared peerdma_cufile.h
} | sort >"$tmp/declared"
check "libcufile exports what its headers declare" alike "$tmp/declared" "$tmp/exported"
# The list is separate from the header, so that a declaration lost there is noticed.
grep -v '^#' "$root/tests/host/cufile/cufile.symbols" | sort >"$tmp/public"
comm -23 "$tmp/public" "$tmp/exported" >"$tmp/missing"
check "every symbol of 1.15, and the later ones" bash -c "! grep . '$tmp/missing'"
check "its soname" bash -c "readelf -d '$cufile' | grep -q 'SONAME.*\\[libcufile.so.0\\]'"
check "it is never unloaded" bash -c "readelf -d '$cufile' | grep -q 'FLAGS_1.*NODELETE'"
readelf -n "$cufile" | awk '$1 == "Provider:" { provider = $2 } $1 == "Name:" { name = $2 } $1 == "Arguments:" { print provider, name, NF - 1 }' |
	sort -u >"$tmp/probes"
printf '%s\n' 'libcufile io_begin 6' 'libcufile io_end 6' >"$tmp/wanted"
check "its probes, with six arguments each" alike "$tmp/wanted" "$tmp/probes"
check "no versions" bash -c "! readelf -SW '$cufile' | grep -q gnu.version_d"
check "no static constructors" starts_nothing "$cufile"
check "an old libstdc++ will do" needs_no_newer "$cufile" GLIBCXX_3.4.26
needed='libstdc|libgcc_s|libc\.|libm\.|ld-linux'
# Without liburing.a it is linked dynamically.
[ -e "$(${CXX:-g++} -print-file-name=liburing.a)" ] || needed="$needed|liburing\."
check "CUDA, udev and libpeerdma are not needed to load it" bash -c "! readelf -d '$cufile' | grep NEEDED | grep -vE '$needed'"
finish
