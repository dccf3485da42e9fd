#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Programs that are not linked to libcufile.so.0 and load it by dlopen or LD_PRELOAD: client.cpp, each case with a CUDA
# driver (the stand-in) and without one.
. "$(dirname "$0")/../tap.sh"
temporary -p "$build"
cufile=$build/lib/libcufile.so.0
unset CUFILE_ENV_PATH_JSON

# client CASE [VARIABLE=VALUE...]
client() { timeout 60 env "${@:2}" "$tmp/client" "$1" "$cufile" "$tmp/file" "$root/tests/host/cufile/cufile.symbols"; }

check "a program that is built against nothing" g++ -std=c++20 -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -I"$root/include" \
	-DPEERDMA_CUFILE_NO_CUDA_H "$root/tests/host/cufile/client.cpp" -o "$tmp/client" -ldl -pthread
check "and needs neither CUDA nor cuFile" bash -c "! readelf -d '$tmp/client' | grep -E 'NEEDED.*(cuda|cufile|peerdma)'"
for name in $("$tmp/client"); do
	preload=
	[ "$name" != preloaded ] || preload=LD_PRELOAD=$cufile
	check "$name, with a CUDA driver" client "$name" LD_LIBRARY_PATH="$build/tests/softgpu" $preload
	if ldconfig -p | grep -q 'libcuda\.so\.1'; then
		skip "$name, without one" "this machine has one"
	else
		check "$name, without one" client "$name" LD_LIBRARY_PATH= $preload
	fi
done

# A missing driver or module is logged in one line, at the requested level, and only if requested.
client odd_configurations CUFILE_LOGGING_LEVEL=NOTICE >"$tmp/said" 2>&1
policy='built-in values, there is no /etc/cufile.json'
[ ! -e /etc/cufile.json ] || policy=/etc/cufile.json
check "a configuration that is missing is named" grep -q "NOTICE .*no such file: \"/nowhere/cufile.json\"; using $policy\$" "$tmp/said"
check "in one line" test "$(grep -c /nowhere "$tmp/said")" = 1

# Preloading the library does not change programs that do not use cuFile.
strange() { LD_PRELOAD=$cufile bash -c 'echo said; echo complained >&2; (exit 3); status=$?; ls / >/dev/null; exit $status' 2>&1; }
check "a stranger says what it says, and nothing else" test "$(strange)" = "$(printf 'said\ncomplained')"
strange >/dev/null
check "and ends as it ends" test $? = 3
finish
