#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Each library exports what its headers declare, and libpeerdma what its map lists: nothing less, nothing more.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${PEERDMA_BUILD:-$root/build}
so=$build/lib/libpeerdma.so
cufile=$build/lib/libcufile.so.0
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

# same NAME FILE FILE
same() {
	n=$((n + 1))
	if [ -s "$2" ] && diff "$2" "$3" >"$tmp/diff"; then
		echo "ok $n - $1"
	else
		echo "not ok $n - $1"
		sed 's/^/# /' "$tmp/diff"
	fi
}

# check NAME COMMAND...
check() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/out" 2>&1; then echo "ok $n - $name"; else
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/out"
	fi
}

nm -D --defined-only "$so" | awk '$2 != "A" { sub(/@.*/, "", $3); print $3 }' | sort >"$tmp/exported"
sed -n 's/^\t\(peerdma_[a-z_]*\);$/\1/p' "$root/user/lib/libpeerdma.map" | sort >"$tmp/mapped"
tr '\n' ' ' <"$root/include/peerdma.h" | grep -o 'PEERDMA_API [^;(]*(' | grep -o 'peerdma_[a-z_]*($' |
	tr -d '(' | sort >"$tmp/declared"

same "the map lists what the header declares" "$tmp/declared" "$tmp/mapped"
same "the library exports what the map lists" "$tmp/mapped" "$tmp/exported"
check "every export has the version" bash -c "! nm -D --defined-only '$so' | awk '\$2 != \"A\"' | grep -v '@@PEERDMA_0.1\$'"
check "its soname" bash -c "readelf -d '$so' | grep -q 'SONAME.*\\[libpeerdma.so.0\\]'"
# frame_dummy of the C runtime is the one entry that every library has.
check "no static constructors" bash -c "[ \"\$(readelf -SW '$so' | sed -n 's/.* \\.init_array *INIT_ARRAY *[0-9a-f]* [0-9a-f]* \\([0-9a-f]*\\) .*/\\1/p')\" = 000008 ]"
check "no run path" bash -c "! readelf -d '$so' | grep -qE 'RPATH|RUNPATH'"
check "every function has a manual page" bash -c "
	while read -r name; do
		grep -qE \"^\\.(Nm|Fo|Fn) \$name\\\$\" '$root'/Documentation/man/*.3 || { echo \"\$name\"; missing=1; }
	done <'$tmp/declared'; [ -z \"\${missing:-}\" ]"

# libcufile: by the header, without versions, as the original; besides the extensions and the first name of Close.
nm -D --defined-only "$cufile" | awk '$2 != "A" { print $3 }' | sort >"$tmp/exported"
{
	sed -n 's/^[A-Za-z].*[ *]\(cuFile[A-Za-z0-9_]*\)(.*/\1/p' "$root/include/cufile.h"
	tr '\n' ' ' <"$root/include/peerdma_cufile.h" | grep -o 'PEERDMA_API [^;(]*(' | grep -o 'peerdma_[a-z_]*($' | tr -d '('
} | sort >"$tmp/declared"
same "libcufile exports what its headers declare" "$tmp/declared" "$tmp/exported"
# As tests/host/cufile.symbols has them: by name, so that a header that loses one is noticed.
grep -v '^#' "$root/tests/host/cufile.symbols" | sort >"$tmp/public"
comm -23 "$tmp/public" "$tmp/exported" >"$tmp/missing"
check "every symbol of 1.15, and readv and writev" bash -c "! grep . '$tmp/missing'"
check "its soname" bash -c "readelf -d '$cufile' | grep -q 'SONAME.*\\[libcufile.so.0\\]'"
check "it is never unloaded" bash -c "readelf -d '$cufile' | grep -q 'FLAGS_1.*NODELETE'"
check "no versions" bash -c "! readelf -SW '$cufile' | grep -q gnu.version_d"
check "no static constructors" bash -c "[ \"\$(readelf -SW '$cufile' | sed -n 's/.* \\.init_array *INIT_ARRAY *[0-9a-f]* [0-9a-f]* \\([0-9a-f]*\\) .*/\\1/p')\" = 000008 ]"
check "CUDA, udev and libpeerdma are not needed to load it" bash -c "! readelf -d '$cufile' | grep NEEDED | grep -vE 'libstdc|libgcc_s|libc\\.|libm\\.|ld-linux'"
echo "1..$n"
