#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# make module with fake kernels. On an unknown kernel a warning is shown but the build succeeds; where we look for
# warnings (the lab's kernels, make lint) a warning is a failure.
. "$(dirname "$0")/../tap.sh"
temporary
unset KSRC W V
export PEERDMA_BUILD=$tmp/out

# build STATUS WANTED UNWANTED FOLDER [VARIABLE=VALUE...]: expects the status, and output with WANTED, without UNWANTED
build() {
	local said status=0
	said=$(env "${@:5}" "$root/scripts/module.sh" "$4" 2>&1) || status=$?
	if [ $status = "$1" ] && [[ $said =~ $2 ]] && ! [[ $said =~ $3 ]]; then
		ok "$(basename "$4") ${*:5}: status $1, $2"
	else
		not_ok "$(basename "$4") ${*:5}: status $1, $2" "status $status, $said"
	fi
}

# kernel FOLDER LINE...: a fake kernel whose build prints these lines
kernel() {
	mkdir -p "$1"
	printf '%s\n' 'modules:' '	@echo "asked for W=$(W)"' >"$1/Makefile"
	printf '\t@echo "%s"\n' "${@:2}" >>"$1/Makefile"
	printf '\t@touch %s\n' '$(M)/peerdma.ko' >>"$1/Makefile"
}

kernel "$tmp/headers-clean" "  CC [M] main.o" "warning: the compiler differs from the one used to build the kernel"
kernel "$tmp/headers-warns" "main.c:7:1: warning: odd"
kernel "$tmp/lab-warns/build" "main.c:7:1: warning: odd"
echo "1-1 7.2.1" >"$tmp/lab-warns/version"
printf 'modules:\n\t@echo "asked for W=$(W)"; echo "main.c:7: error: wrong"; exit 1\n' >"$tmp/headers-warns/wrong"

build 0 "/peerdma\.ko$" "warning" "$tmp/headers-clean"
build 0 "/peerdma\.ko$" "warning" "$tmp/headers-clean" W=1
# As make -j2 sets it. The lab's kernels take no warning.
build 0 "/peerdma\.ko$" "warning" "$tmp/headers-clean" W=1 MAKEFLAGS=" -j2 --jobserver-auth=3,4"
build 0 "warning: odd.*/peerdma\.ko$" "error" "$tmp/headers-warns"
build 1 "warning: odd.*builds with warnings" "peerdma\.ko$" "$tmp/headers-warns" W=1
build 1 "warning: odd.*builds with warnings" "peerdma\.ko$" "$tmp/lab-warns"
# A directory laid out like the lab's, but with the user's own source tree.
build 0 "warning: odd.*/peerdma\.ko$" "error" "$tmp/lab-warns" KSRC=/somewhere
mv "$tmp/headers-warns/wrong" "$tmp/headers-warns/Makefile"
build 1 "asked for W=.main.c:7: error: wrong.*does not build" "W=1" "$tmp/headers-warns"
build 1 "no kernel at" "W=" "$tmp/none"
finish
