#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: check
#
# A program ends while libcufile is busy: exits.cpp with the stand-in CUDA driver. It must end at once, with its own
# status and without output; closing the driver during the exit succeeds.
. "$(dirname "$0")/../tap.sh"
temporary -p "$build"
echo '{}' >"$tmp/cufile.json"
export CUFILE_ENV_PATH_JSON=$tmp/cufile.json LD_LIBRARY_PATH=$build/tests/softgpu:$build/lib
ulimit -c 0

# verdict NAME: passes if $? is 0; on failure, prints $tmp/out
verdict() { if [ $? = 0 ]; then ok "$1"; else not_ok "$1" "$(cat "$tmp/out")"; fi; }

compile() {
	g++ -std=c++20 -O1 -Wall -Wextra -Werror -D_GNU_SOURCE -I"$root/include" -I"$root/tests/softgpu/include" "$@" \
		"$root/tests/host/cufile/exits.cpp" -L"$build/lib" -L"$build/tests/softgpu" -lcufile -l:libcuda.so.1 -ldl -pthread \
		-Wl,-rpath-link,"$build/lib" >"$tmp/out" 2>&1
}
compile -o "$tmp/exits" && compile -DPLUGIN -fPIC -shared -fno-gnu-unique -o "$tmp/plugin.so"
verdict "the program and its plugin"

# ends END CLOSE BUSY
ends() {
	local want="status 42" plugin=()
	case $2 in
	nobody) ;;
	unload) want+=$'\nclosed 0\nunloaded' ;;
	*) want+=$'\nclosed 0' ;;
	esac
	case $2 in plugin | unload) plugin=("$tmp/plugin.so") ;; esac
	timeout -s KILL 60 "$tmp/exits" "$1" "$2" "$3" "$tmp/file" ${plugin[@]+"${plugin[@]}"} >"$tmp/said" 2>&1
	{
		echo "status $?"
		cat "$tmp/said"
	} >"$tmp/out"
	[ "$(cat "$tmp/out")" = "$want" ]
	verdict "$1, closed by $2, busy with $3"
}

for busy in idle reads batch stream all; do
	for who in nobody main first last static late local plugin unload; do
		ends exit "$who" "$busy"
	done
done
for end in return thread callback leave quick now; do
	ends $end nobody all
done
for end in return thread leave; do
	ends $end static all
	ends $end late all
done
# A host function must not call CUDA until CUDA is shut down, so only a destructor that runs after that closes the driver.
ends callback static all
ends quick quick all
ends exit reset idle
finish
