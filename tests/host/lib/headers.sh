#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: check
#
# Every public header compiles on its own, with strict warnings, from the tree and from where make install puts it.
. "$(dirname "$0")/../tap.sh"
temporary

# alone DIR HEADER COMPILER STANDARD SUFFIX
alone() {
	printf '#include <%s>\n#include <%s>\nint main(void) { return 0; }\n' "$2" "$2" >"$tmp/alone.$5"
	check "$2 alone, $3 $4${6:+, $6}" "$3" "-std=$4" -Wall -Wextra -Wshadow -Wpedantic -Werror -fsyntax-only \
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

# Installs the library, finds it with pkg-config, links and runs a program.
check "make install" make -s -C "$root/user" install BUILD="$build" DESTDIR="$tmp/root" PREFIX=/usr
# As root does after "make CXXFLAGS=... lib tools", without these flags.
compiles_nothing() {
	make -n -C "$root/user" install BUILD="$build" DESTDIR="$tmp/root" PREFIX=/usr CXXFLAGS="-O0 -g" >"$tmp/commands" &&
		! grep -E -- ' -c .*[.]cpp' "$tmp/commands"
}
check "with other flags it compiles nothing again" compiles_nothing
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
check "a C program links" gcc -std=c11 -Wall -Wextra -Werror "$tmp/use.c" -o "$tmp/use" "${flags[@]}"
check "and runs" env LD_LIBRARY_PATH="$tmp/root/usr/lib" "$tmp/use"
check "a C++ program links" g++ -std=c++20 -Wall -Wextra -Werror "$tmp/use.cpp" -o "$tmp/usexx" "${flags[@]}"
check "and runs" env LD_LIBRARY_PATH="$tmp/root/usr/lib" "$tmp/usexx"
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
check "a program of verbs links" gcc -std=c11 -Wall -Wextra -Werror "$tmp/verbs.c" -o "$tmp/verbs" "${flags[@]}"
check "and runs" env LD_LIBRARY_PATH="$tmp/root/usr/lib" "$tmp/verbs"
check "the worked example, as it says" g++ -std=c++20 -Wall -Wextra -Werror "$root/Documentation/examples/file_to_gpu.cpp" \
	-o "$tmp/example" "${flags[@]}" -libverbs
# For packagers: make install creates the group, but not a second time.
group() {
	systemd-sysusers --root="$tmp/root" && systemd-sysusers --root="$tmp/root" &&
		[ "$(grep -c ^peerdma: "$tmp/root/etc/group")" = 1 ]
}
if command -v systemd-sysusers >/dev/null; then
	mkdir -p "$tmp/root/etc"
	check "the group that is installed" group
fi
check "the udev rule that is installed" grep -q GROUP=.peerdma. "$tmp/root/usr/lib/udev/rules.d/60-peerdma.rules"
check "the parameters for modprobe that are installed" grep -q "^#options peerdma user_max=" "$tmp/root/usr/lib/modprobe.d/peerdma.conf"
check "the installed command finds its library" "$tmp/root/usr/bin/peerdma" --version

# Uninstall removes our files and keeps other files, even of the same name.
into() { make -s -C "$root/user" "$1" BUILD="$build" DESTDIR="$2" PREFIX=/usr MODPROBEDIR=/etc/modprobe.d; }
left() {
	into install "$tmp/ours" && [ -e "$tmp/ours/usr/share/man/man3/peerdma_read.3" ] && into uninstall "$tmp/ours" || return 1
	find "$tmp/ours" -mindepth 1
	[ -z "$(find "$tmp/ours" -mindepth 1)" ] || return 1
	mkdir -p "$tmp/others/usr/lib" && echo other | tee "$tmp/others/usr/lib/libother.so" >"$tmp/others/usr/lib/libcufile.so.0"
	into uninstall "$tmp/others" && [ -s "$tmp/others/usr/lib/libother.so" ] && [ -s "$tmp/others/usr/lib/libcufile.so.0" ]
}
# In the root directory: only folders of ours are removed.
own() {
	into install "$tmp/own" && make -s -C "$root/user" uninstall BUILD="$build" PREFIX="$tmp/own/usr" MODPROBEDIR="$tmp/own/etc/modprobe.d" || return 1
	find "$tmp/own" ! -type d -o -name peerdma
	[ -z "$(find "$tmp/own" ! -type d -o -name peerdma)" ] && [ -d "$tmp/own/usr/lib/pkgconfig" ]
}
check "without DESTDIR it leaves the folders that others use" own
check "make uninstall leaves nothing of ours, and what others have" left
finish
