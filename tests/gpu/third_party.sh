#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# What others have written on cuFile, unmodified, on a real GPU. None of it is here: it is looked for in
# DIR/deepspeed, DIR/fastsafetensors, DIR/kvikio and DIR/nixl, checkouts of the commits that README.md names.
#   third_party.sh DIR FILE [LIBRARY]
# FILE is overwritten. LIBRARY is preloaded; without one it is the installed library that runs. CLIENT_CFLAGS and
# CLIENT_LDFLAGS say where headers and libraries are that the compiler does not find.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
clients=$(cd "$1" && pwd) file=$2 library=${3:-}
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda} TMPDIR=${TMPDIR:-/tmp}
status=0

with_library()
{
	if [ "$library" ]; then LD_PRELOAD=$library timeout 200 "$@"; else timeout 200 "$@"; fi
}

compile() # NAME, what else
{
	local name=$1
	shift
	[ ! -x "$TMPDIR/third_party_$name" ] || return 0
	# shellcheck disable=SC2086 # they are lists
	timeout 200 g++ -std=c++20 -O1 -w "-D${name^^}" ${CLIENT_CFLAGS:-} "-I$CUDA_HOME/include" "$@" "$here/third_party.cpp" \
		-o "$TMPDIR/third_party_$name" ${CLIENT_LDFLAGS:-} "-L$CUDA_HOME/lib64" "-L$CUDA_HOME/lib64/stubs" -lcudart \
		-l:libcufile.so.0 -lcuda -pthread
}

# nixl.h needs all of nixl: of it gds_utils has these
nixl_headers()
{
	mkdir -p "$TMPDIR/third_party_nixl_headers" && cat >"$TMPDIR/third_party_nixl_headers/nixl.h" <<-'END'
		#pragma once
		#include <string>
		enum nixl_status_t { NIXL_SUCCESS = 0, NIXL_IN_PROG = 1, NIXL_ERR_NOT_POSTED = -1, NIXL_ERR_BACKEND = -3 };
	END
}

one() # NAME COMMAND
{
	local name=$1
	shift
	[ -d "$clients/$name" ] || return 0
	echo "== $name"
	"$@"
	local error=$?
	echo "$name: status $error"
	[ "$error" = 0 ] || status=1
}

kvikio() { compile kvikio "-I$clients/kvikio/cpp/include" && with_library "$TMPDIR/third_party_kvikio" "$file"; }

nixl()
{
	local gds=$clients/nixl/src/plugins/cuda_gds
	nixl_headers && compile nixl "-I$TMPDIR/third_party_nixl_headers" "-I$gds" "$gds/gds_utils.cpp" &&
		with_library "$TMPDIR/third_party_nixl" "$file"
}

python() # NAME
{
	# DeepSpeed writes a file where it is
	(cd "$TMPDIR" && export PYTHONDONTWRITEBYTECODE=1 &&
		timeout 300 "$here/third_party.py" "$1" "$clients/$1" && # the compiler has nothing preloaded
		with_library python3 -X faulthandler "$here/third_party.py" "$1" "$clients/$1" "$file")
}

one deepspeed python deepspeed
one fastsafetensors python fastsafetensors
one kvikio kvikio
one nixl nixl
exit "$status"
