#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# tier: check
#
# tests/gpu/families.cpp, which is meant for a real GPU, with the stand-in for the CUDA driver: each family of cuFile's
# calls with each kind of memory.
exec "$(dirname "$0")/../../gpu/stand_in.sh" families
