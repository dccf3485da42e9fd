#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every allocation and user copy inside PEERDMA_BUF_ALLOC fails once: failalloc.cpp.
# group: fail
# topologies: switch
# variants: debug
. "$LAB_ROOT/tests/guest/lib.sh"
publish
exec failalloc
