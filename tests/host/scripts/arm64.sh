#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# scripts/arm64.sh with stand-ins for the mirror, the compiler and the emulator: when it asks the mirror, what it keeps, and that each
# failure is one.
. "$(dirname "$0")/../tap.sh"
temporary
unset ARM64_SYSROOT MAKEFLAGS MAKELEVEL V
export PEERDMA_BUILD=$tmp/build PEERDMA_CACHE=$tmp/cache PATH=$tmp/bin:$PATH STATE=$tmp/state

mkdir -p "$tmp/scripts" "$tmp/user" "$tmp/bin" "$tmp/state"
cp "$root"/scripts/{arm64,common,apt}.sh "$tmp/scripts/"
# stand_in NAME LINE...
stand_in() {
	printf '%s\n' '#!/bin/bash' "${@:2}" >"$tmp/bin/$1"
	chmod +x "$tmp/bin/$1"
}
# A mirror with one package, whose version is in $STATE/version. Each question is a line of $STATE/questions.
# shellcheck disable=SC2016 # the stand-in's variables
stand_in apt-get 'case " $* " in
*" indextargets "*) echo "http://mirror/debian suite" ;;
*" update "*) echo update >>"$STATE/questions"; [ ! -e "$STATE/unreachable" ] ;;
*" --print-uris "*) echo "'\''http://mirror/a.deb'\'' a_$(cat "$STATE/version").deb 1 SHA256:0" ;;
*" --download-only "*) echo download >>"$STATE/questions"; [ ! -e "$STATE/incomplete" ] &&
	touch "$PEERDMA_CACHE/arm64/apt/cache/archives/a_$(cat "$STATE/version").deb" ;;
*) exit 1 ;;
esac'
# shellcheck disable=SC2016
stand_in dpkg-deb 'mkdir -p "$3/usr/lib" "$3/usr/include" && echo "$2" >"$3/usr/include/a.h" && ln -s /usr/include/a.h "$3/usr/lib/absolute"'
# shellcheck disable=SC2016
stand_in aarch64-linux-gnu-g++ 'cat "$STATE/compiler"'
# shellcheck disable=SC2016
stand_in aarch64-linux-gnu-objdump 'cat "$STATE/instructions"'
# shellcheck disable=SC2016
stand_in qemu-aarch64 'root=${1%/lib/ld-linux-aarch64.so.1}' \
	'[ "$2" = --library-path ] && [ -f "$root/usr/include/a.h" ] || exit 9' 'case $4 in
*view_unit) echo "$root" >"$STATE/root"; cat "$STATE/passed"; exit "$(cat "$STATE/tests")" ;;
*peerdma-viewd) exit "$(cat "$STATE/viewd")" ;;
esac'
# shellcheck disable=SC2016
printf '%s\n' 'viewd view-tests:' '	@echo "$@ $(CXX) $(BUILD)" >>$(STATE)/built' '	@exit "$$(cat $(STATE)/make)"' >"$tmp/user/Makefile"

# disassembled INSTRUCTION: packing's, beside NEON instructions of the other functions
disassembled() {
	local neon="  8:	0e612800 	xtn	v0.4h, v0.4s" packing="  8:	0e612800 	$1	v0.4h, v0.4s"
	[ "$1" = xtn ] || packing="  8:	b9400020 	$1	w0, [x1]"
	printf '%s\n' "0000 <view::pack_portable(std::span)>:" "$packing" "" "0010 <view::unpack_portable(std::byte const*)>:" "$neon" "" \
		"0020 <view::convert(int)>:" "$neon" "" >"$tmp/state/instructions"
}
# All is well.
reset() {
	rm -f "$tmp"/state/*
	echo "[  PASSED  ] 3 tests." >"$tmp/state/passed"
	disassembled xtn
	echo "compiler 1" >"$tmp/state/compiler"
	echo 1-1 >"$tmp/state/version"
	for status in tests viewd make; do echo 0 >"$tmp/state/$status"; done
	rm -rf "$PEERDMA_BUILD" "$PEERDMA_CACHE"
}
# A day later.
next_day() { find "$PEERDMA_CACHE" -name asked -exec touch -r {} -d '25 hours ago' {} ';'; }
# ends STATUS WORDS: how the script ends, and what it says
ends() {
	local status=0 said
	said=$("$tmp/scripts/arm64.sh" 2>&1) || status=$?
	[ "$status" = "$1" ] && [[ $said = *$2* ]] || { printf '%s\n' "status $status" "$said"; return 1; }
}
asked() { [ "$(paste -sd ' ' "$tmp/state/questions" 2>/dev/null)" = "$*" ] || { sed 's/^/asked: /' "$tmp/state/questions"; return 1; }; }
sysroots() { [ "$(find "$PEERDMA_CACHE/arm64" -maxdepth 1 -name 'sysroot-*' | wc -l)" = "$1" ]; }
reset
check "an empty cache: succeeds" ends 0 "3 tests"
check "the mirror is asked, packages are downloaded" asked update download
check "the compiler and the emulator use what was unpacked" grep -q "^viewd aarch64-linux-gnu-g++ --sysroot=$(cat "$tmp/state/root") $PEERDMA_BUILD/arm64$" "$tmp/state/built"
check "a link from / on stays within" test "$(readlink "$(cat "$tmp/state/root")/usr/lib/absolute")" = ../include/a.h
check "archives are not kept" test -z "$(find "$PEERDMA_CACHE" -name '*.deb')"
touch "$PEERDMA_BUILD/arm64/kept"
check "the same day: succeeds" ends 0 ""
check "the mirror is not asked again" asked update download
check "what was built is kept" test -e "$PEERDMA_BUILD/arm64/kept"
next_day
check "the next day, the same versions: succeeds" ends 0 ""
check "nothing is downloaded" asked update download update
next_day
echo 1-2 >"$tmp/state/version"
check "another version: succeeds" ends 0 ""
check "it is downloaded" asked update download update update download
check "beside the one before, which others may use" sysroots 2
check "what was built with the one before is gone" test ! -e "$PEERDMA_BUILD/arm64/kept"
touch "$PEERDMA_BUILD/arm64/kept"
echo "compiler 2" >"$tmp/state/compiler"
check "another compiler: succeeds" ends 0 ""
check "what the one before has built is gone" test ! -e "$PEERDMA_BUILD/arm64/kept"
next_day
touch "$tmp/state/unreachable"
check "the mirror cannot be reached: goes on with the cache" ends 0 "going on with sysroot-"
check "with the newest in it" grep -q 1-2 "$(cat "$tmp/state/root")/usr/include/a.h"
find "$PEERDMA_CACHE" -name asked -exec touch -d '31 days ago' {} + -execdir touch -d '31 days ago' . ';'
rm "$tmp/state/unreachable"
check "a month later: succeeds" ends 0 ""
check "the older one is removed" sysroots 1

reset
touch "$tmp/state/unreachable"
check "the mirror cannot be reached, nothing in the cache: fails" ends 1 "no arm64 libraries are in the cache"
reset
touch "$tmp/state/incomplete"
check "a download fails: fails" ends 1 "could not fetch the arm64 libraries"
check "nothing of it is in the cache" sysroots 0
reset
echo 2 >"$tmp/state/make"
check "it does not build: fails" ends 2 ""
reset
echo "orr w0, w0, w1" >"$tmp/state/instructions"
check "no vector instruction: fails" ends 1 "has not made NEON instructions of it"
reset
disassembled ldr
check "none in the packing: fails" ends 1 "has not made NEON instructions of view::pack_portable"
reset
echo 1 >"$tmp/state/tests"
check "a unit test fails: fails" ends 1 ""
reset
echo "[  PASSED  ] 0 tests." >"$tmp/state/passed"
check "no unit test is run: fails" ends 1 "no unit test was run"
reset
echo 1 >"$tmp/state/viewd"
check "peerdma-viewd does not start: fails" ends 1 "peerdma-viewd --help failed"
reset
ARM64_SYSROOT=$tmp/own
export ARM64_SYSROOT
check "a folder of one's own that is not there: fails" ends 1 "ARM64_SYSROOT=$tmp/own has no usr/include"
dpkg-deb -x a.deb "$tmp/own"
check "a folder of one's own: succeeds" ends 0 "3 tests"
check "the mirror is not asked" test ! -e "$tmp/state/questions"
finish
