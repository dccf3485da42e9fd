#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Every public header compiles alone, as a program that includes nothing else meets it, with the warnings
# that careful programs turn on; in the folder that make install fills as well as in the tree.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=${PEERDMA_BUILD:-$root/build}
tmp=$(mktemp -d)
trap 'rm -rf "$tmp"' EXIT
n=0

# try NAME COMMAND...
try() {
	local name=$1
	shift
	n=$((n + 1))
	if "$@" >"$tmp/out" 2>&1; then
		echo "ok $n - $name"
	else
		echo "not ok $n - $name"
		sed 's/^/# /' "$tmp/out"
	fi
}

# alone DIR HEADER COMPILER STANDARD SUFFIX
alone() {
	printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$2" "$2" >"$tmp/alone.$5"
	try "$2 alone, $3 $4${6:+, $6}" "$3" "-std=$4" -Wall -Wextra -Wshadow -Wpedantic -Werror -fsyntax-only \
		-I"$1" "$tmp/alone.$5"
}

for compiler in gcc clang; do
	command -v $compiler >/dev/null || continue
	cxx=g++
	[ $compiler = gcc ] || cxx=clang++
	for header in uapi/peerdma.h peerdma.h cufile.h peerdma_cufile.h peerdma_verbs.h; do
		alone "$root/include" $header $compiler c11 c
		alone "$root/include" $header $cxx c++11 cpp
		alone "$root/include" $header $cxx c++20 cpp
	done
	alone "$root/include" peerdma.hpp $cxx c++20 cpp
done

# Installed, found by pkg-config, linked and run.
try "make install" make -s -C "$root/user" install BUILD="$build" DESTDIR="$tmp/root" PREFIX=/usr
export PKG_CONFIG_PATH=$tmp/root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$tmp/root
cat >"$tmp/use.c" <<'C'
#include <peerdma.h>
#include <stdio.h>
int main(void) { return puts(peerdma_version()) < 0; }
C
cat >"$tmp/use.cpp" <<'C'
#include <peerdma.hpp>
int main() { return peerdma::Device::open() ? 0 : 0; }
C
if command -v pkg-config >/dev/null; then
	read -ra flags <<<"$(pkg-config --cflags --libs libpeerdma)"
else
	flags=(-I"$tmp/root/usr/include/peerdma" -L"$tmp/root/usr/lib" -lpeerdma)
fi
try "a C program links" gcc -std=c11 -Wall -Wextra -Werror "$tmp/use.c" -o "$tmp/use" "${flags[@]}"
try "and runs" env LD_LIBRARY_PATH="$tmp/root/usr/lib" "$tmp/use"
try "a C++ program links" g++ -std=c++20 -Wall -Wextra -Werror "$tmp/use.cpp" -o "$tmp/usexx" "${flags[@]}"
try "and runs" env LD_LIBRARY_PATH="$tmp/root/usr/lib" "$tmp/usexx"
cat >"$tmp/verbs.c" <<'C'
#include <infiniband/verbs.h>
#include <peerdma_verbs.h>
int main(void) { return peerdma_mr_dereg(NULL); }
C
if command -v pkg-config >/dev/null; then
	read -ra flags <<<"$(pkg-config --cflags --libs libpeerdma-verbs)"
else
	flags+=(-lpeerdma-verbs)
fi
try "a program of verbs links" gcc -std=c11 -Wall -Wextra -Werror "$tmp/verbs.c" -o "$tmp/verbs" "${flags[@]}"
try "and runs" env LD_LIBRARY_PATH="$tmp/root/usr/lib" "$tmp/verbs"
try "the worked example, as it says" g++ -std=c++20 -Wall -Wextra -Werror "$root/Documentation/examples/file_to_gpu.cpp" \
	-o "$tmp/example" "${flags[@]}" -libverbs
# The group, for those who make packages of it: made when it is installed, and not twice.
group() {
	systemd-sysusers --root="$tmp/root" && systemd-sysusers --root="$tmp/root" &&
		[ "$(grep -c ^peerdma: "$tmp/root/etc/group")" = 1 ]
}
if command -v systemd-sysusers >/dev/null; then
	mkdir -p "$tmp/root/etc"
	try "the group that is installed" group
fi
try "the udev rule that is installed" grep -q GROUP=.peerdma. "$tmp/root/usr/lib/udev/rules.d/60-peerdma.rules"
try "the installed command finds its library" "$tmp/root/usr/bin/peerdma" --version
echo "1..$n"
