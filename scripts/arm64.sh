#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# arm64.sh: cross-builds peerdma-viewd and the unit tests of user/view and user/viewd for arm64 in build/arm64, and runs these tests by
# qemu-user. That translates instructions and system calls: no arm64 kernel and no device is part of it.
#
# The libraries are Debian's arm64 packages, unpacked into a folder of the cache and not installed. ARM64_SYSROOT=/path: a folder of
# your own that has them.
set -euo pipefail
shopt -s inherit_errexit
. "$(dirname "$0")/common.sh"
. "$(dirname "$0")/apt.sh"

triplet=aarch64-linux-gnu
emulator=qemu-aarch64
packages='libc6-dev libcli11-dev libfmt-dev libgtest-dev libisal-dev liblz4-dev liburing-dev libzstd-dev nlohmann-json3-dev'
cache=$PEERDMA_CACHE/arm64
apt_home=$cache/apt
build=$PEERDMA_BUILD/arm64

# As if nothing were installed: a package comes with all that it needs.
apt_arm64() {
	apt_private "$@" -o Dir::State::status="$apt_home/state/status" -o APT::Architecture=arm64 -o APT::Architectures=arm64 \
		-o APT::Install-Recommends=false
}

# cached_sysroot WANTED [FIND-TEST...]: the folder of these packages for which the mirror was asked last
cached_sysroot() {
	find "$cache" -mindepth 2 -maxdepth 2 -path "$cache/sysroot-$1-*/asked" "${@:2}" -printf '%T@ %h\n' 2>/dev/null |
		sort -n | tail -n 1 | cut -d' ' -f2-
}

# The folder with the libraries, on stdout. Fetches them if necessary.
sysroot() {
	local wanted found
	if [ -n "${ARM64_SYSROOT:-}" ]; then
		[ -d "$ARM64_SYSROOT/usr/include" ] || die "ARM64_SYSROOT=$ARM64_SYSROOT has no usr/include"
		echo "$ARM64_SYSROOT"
		return
	fi
	command -v apt-get >/dev/null || die "the arm64 libraries are Debian packages: without apt-get give ARM64_SYSROOT=/path"
	mkdir -p "$cache"
	# One process at a time: apt's lists and archives are shared.
	exec 8>"$cache/lock"
	flock 8
	wanted=$(sha256sum <<<"$packages" | cut -c1-10)
	# Asks the mirror at most once a day.
	found=$(cached_sysroot "$wanted" -mtime -1)
	if [ -z "$found" ]; then
		need_disk "$cache" 600 "fetching the arm64 libraries"
		step "looking up the arm64 libraries"
		apt_sources ARM64_SYSROOT=/path
		: >"$apt_home/state/status"
		# By default it succeeds without a network.
		if apt_arm64 apt-get -qq -o APT::Update::Error-Mode=any update >&2; then
			found=$(fetch_sysroot "$wanted")
		else
			found=$(cached_sysroot "$wanted")
			[ -n "$found" ] || die "apt-get update failed for arm64, and no arm64 libraries are in the cache"
			say "    apt-get update failed: going on with $(basename "$found") of the cache"
		fi
	fi
	touch "$found"
	# Those of other versions, if nobody has used them for 30 days.
	find "$cache" -mindepth 1 -maxdepth 1 -name 'sysroot-*' ! -path "$found" -mtime +30 -exec rm -rf {} +
	echo "$found"
}

# fetch_sysroot WANTED: downloads and unpacks the packages, unless the cache has a folder of their versions. The folder on stdout.
fetch_sysroot() {
	local files file folder new link archives=$apt_home/cache/archives
	# Of a download that was interrupted: apt would not name what is there already.
	rm -f "$archives"/*.deb
	# One a line: 'URL' file bytes checksum
	# shellcheck disable=SC2086 # several packages
	files=$(apt_arm64 apt-get -qq --print-uris install $packages | sort) || die "the mirror does not offer for arm64: $packages"
	folder=$cache/sysroot-$1-$(cut -d' ' -f2- <<<"$files" | sha256sum | cut -c1-10)
	if [ ! -d "$folder" ]; then
		step "fetching $(wc -l <<<"$files") arm64 packages"
		# shellcheck disable=SC2086 # several packages
		apt_arm64 apt-get -qq -y --download-only install $packages >&2 || die "could not fetch the arm64 libraries"
		new=$cache/new
		rm -rf "$new" && mkdir "$new"
		for file in "$archives"/*.deb; do dpkg-deb -x "$file" "$new"; done
		# A link that begins with / would lead to this machine's files.
		find "$new" -type l -lname '/*' -print0 | while IFS= read -rd '' link; do
			ln -sfnr "$new$(readlink "$link")" "$link"
		done
		rm -rf "$new/usr/share/doc" "$archives"/*.deb
		mv "$new" "$folder"
	fi
	touch "$folder/asked"
	echo "$folder"
}

# has_neon OBJECT [FUNCTION]: dies unless the compiler has made NEON instructions of it, an object of user/view
has_neon() {
	"$triplet-objdump" -dC "$build/obj/user/view/$1.o" | sed -n "/^[0-9a-f]* <.*${2:-}(/,/^$/p" >"$build/neon.s"
	grep -qE 'v[0-9]+\.(16b|8h|4s|2d)' "$build/neon.s" ||
		die "user/view/$1.cpp: the compiler has not made NEON instructions of ${2:-it}"
}

for tool in "$triplet-g++" "$emulator"; do
	command -v "$tool" >/dev/null || die "there is no $tool: scripts/setup.sh lint names what is missing"
done
root=$(sysroot)
# What was built with other libraries or another compiler is of no use.
of="$root $("$triplet-g++" --version | head -n 1)"
[ "$(cat "$build/of" 2>/dev/null)" = "$of" ] || rm -rf "$build"
mkdir -p "$build"
echo "$of" >"$build/of"

export PKG_CONFIG_LIBDIR=$root/usr/lib/$triplet/pkgconfig:$root/usr/share/pkgconfig
make --no-print-directory -C "$PEERDMA_ROOT/user" -j"$(nproc)" BUILD="$build" CXX="$triplet-g++ --sysroot=$root" CXXFLAGS=-O2 ${V:+V=1} \
	viewd view-tests
# Neither has code of its own for arm64. Packing to other widths than 8 and 16 bits is not vectorized.
has_neon codec
has_neon pack view::pack_portable
has_neon pack view::unpack_portable
# emulate PROGRAM ARGUMENT...: by its loader. With -L the emulator would take / for the folder of the libraries.
emulate() { "$emulator" "$root/lib/ld-linux-aarch64.so.1" --library-path "$root/lib/$triplet:$root/usr/lib/$triplet" "$@"; }

# A program without a test passes too.
emulate "$build/tests/view_unit" --gtest_brief=1 | tee "$build/tests.log"
grep -qE '^\[  PASSED  \] [1-9][0-9]* tests?\.$' "$build/tests.log" || die "no unit test was run"
emulate "$build/bin/peerdma-viewd" --help >/dev/null || die "peerdma-viewd --help failed"
