#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
#
# Unmodified third-party code that uses cuFile, on a real GPU. It is not part of this tree: DIR/deepspeed,
# DIR/fastsafetensors, DIR/kvikio and DIR/nixl are checkouts of the commits named in README.md.
#   third_party.sh DIR FILE [LIBRARY]
# FILE is overwritten. LIBRARY is preloaded; without it the installed library is used. CLIENT_CFLAGS and CLIENT_LDFLAGS
# add directories of headers and libraries for the compiler.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
clients=$(cd "$1" && pwd) file=$2 library=${3:-}
export CUDA_HOME=${CUDA_HOME:-/usr/local/cuda} TMPDIR=${TMPDIR:-/tmp}
status=0

with_library()
{
	if [ "$library" ]; then LD_PRELOAD=$library timeout 200 "$@"; else timeout 200 "$@"; fi
}

compile() # NAME ARGUMENT...
{
	local name=$1
	shift
	[ ! -x "$TMPDIR/third_party_$name" ] || return 0
	# shellcheck disable=SC2086 # they are lists
	timeout 200 g++ -std=c++20 -O1 -w "-D${name^^}" ${CLIENT_CFLAGS:-} "-I$CUDA_HOME/include" "$@" "$here/third_party.cpp" \
		-o "$TMPDIR/third_party_$name" ${CLIENT_LDFLAGS:-} "-L$CUDA_HOME/lib64" "-L$CUDA_HOME/lib64/stubs" -lcudart \
		-l:libcufile.so.0 -lcuda -pthread
}

# nixl.h includes all of nixl; gds_utils needs only this
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
	# DeepSpeed writes a file into the current directory
	(cd "$TMPDIR" && export PYTHONDONTWRITEBYTECODE=1 &&
		timeout 300 "$here/third_party.py" "$1" "$clients/$1" && # the build runs without the preloaded library
		with_library python3 -X faulthandler "$here/third_party.py" "$1" "$clients/$1" "$file")
}

one deepspeed python deepspeed
one fastsafetensors python fastsafetensors
one kvikio kvikio
one nixl nixl
exit "$status"
