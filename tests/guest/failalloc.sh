#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every allocation inside an allocation of a buffer fails once: failalloc.cpp.
# group: fail
# topologies: switch
# variants: debug
. "$LAB_ROOT/tests/guest/lib.sh"
publish
exec failalloc
